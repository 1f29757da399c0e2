"""Not for Python: see pull_response.pxd."""
