"""Used by `cimport` only: see header.pxd."""
