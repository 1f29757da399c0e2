"""Only for `cimport`: see column_fill.pxd."""
