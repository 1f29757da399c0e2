"""Used by `cimport` only: see layout.pxd."""
