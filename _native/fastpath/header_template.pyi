"""Only for `cimport`: see pattern.pxd.

Only for `cimport`: see propertypattern.pxd.
"""
