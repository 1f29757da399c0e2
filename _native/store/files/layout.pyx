"""Layout of Apache's store files (see layout.pxd, whose static assertions run at compile time)."""
