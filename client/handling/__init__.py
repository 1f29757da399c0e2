"""Messages brought to handlers, and what becomes of their answers."""
