"""Only for `cimport`: see propertypattern.pxd."""
