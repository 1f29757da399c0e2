"""Native only: the header of the answer to a pull that found messages."""
