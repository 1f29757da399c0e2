"""Only for `cimport`: see pattern.pxd."""
