def valid(text: bytes | bytearray | memoryview) -> bool:
    """Whether it is valid UTF-8, by the rules of Python's strict decoder."""
