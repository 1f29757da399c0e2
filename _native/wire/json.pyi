"""Used by `cimport` only: see json.pxd."""
