"""Layout of the files: see layout.pxd, which asserts itself when compiled."""
