"""Only for `cimport`: see pairs.pxd."""
