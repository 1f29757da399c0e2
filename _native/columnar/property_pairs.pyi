"""Only for `cimport`: see property_pairs.pxd."""
