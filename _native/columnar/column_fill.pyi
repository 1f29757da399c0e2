"""Only for `cimport`: see fills.pxd.

Only for `cimport`: see hosts.pxd.
"""
