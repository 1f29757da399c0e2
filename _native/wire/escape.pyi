"""Only for `cimport`: see escape.pxd."""
