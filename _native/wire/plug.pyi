class RawTransport:
    """Takes a connection's bytes in place; for native code only."""
