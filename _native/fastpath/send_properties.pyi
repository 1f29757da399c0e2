"""Not for Python: see send_properties.pxd."""
