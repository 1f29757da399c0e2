"""Used by `cimport` only: see frame.pxd."""
