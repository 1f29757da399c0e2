"""Only for `cimport`: see json.pxd.

Only for `cimport`: see escape.pxd.
"""
