"""Only for `cimport`: see frame.pxd."""
