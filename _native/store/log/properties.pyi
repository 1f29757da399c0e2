def property_values(record: bytes | bytearray | memoryview, names: dict[bytes, str]) -> dict[str, str]:
    """The properties of a record that are in `names` (UTF-8 → key of the result); the last of equal names
    wins. Empty for bytes that are not a record."""
