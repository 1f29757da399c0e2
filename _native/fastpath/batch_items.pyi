"""Not for Python: see batch_items.pxd."""
