"""Only for `cimport`: see json.pxd."""
