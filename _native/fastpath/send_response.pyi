"""Native only: the answer to a stored message."""
