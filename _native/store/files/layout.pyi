"""Only for `cimport`: see layout.pxd."""
