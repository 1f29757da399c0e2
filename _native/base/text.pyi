def valid(text: bytes | bytearray | memoryview) -> bool:
    """Whether it is UTF-8, as Python's strict decoder says."""
