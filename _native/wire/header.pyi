"""Only for `cimport`: see header.pxd."""
