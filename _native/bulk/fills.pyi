"""Only for `cimport`: see fills.pxd."""
