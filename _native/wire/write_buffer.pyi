"""Used by `cimport` only: see write_buffer.pxd."""
