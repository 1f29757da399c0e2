"""Not for Python: see request_fields.pxd."""
