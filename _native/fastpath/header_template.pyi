"""Used by `cimport` only: see header_template.pxd."""
