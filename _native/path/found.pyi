"""Native only: the head of the answer to a pull that found messages."""
