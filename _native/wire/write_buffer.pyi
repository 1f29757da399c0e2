"""Only for `cimport`: see writer.pxd."""
