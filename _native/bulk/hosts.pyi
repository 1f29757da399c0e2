"""Only for `cimport`: see hosts.pxd."""
