"""Not for Python: see send_response.pxd."""
