def property_values(record: bytes | bytearray | memoryview, names: dict[bytes, str]) -> dict[str, str]:
    """Those properties of a record whose names (UTF-8 → as asked for) are among `names`; the last of equal names wins.
    Bytes that are no record have none."""
