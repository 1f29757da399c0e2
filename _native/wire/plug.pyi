class Plug:
    """Takes a connection's bytes in place, from native code only."""
