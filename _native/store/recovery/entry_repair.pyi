"""Not for Python."""
