from typing_extensions import Buffer

def crc32(data: Buffer) -> int:
    """CRC-32 with the top bit cleared, as records hold it."""

def java_hash(text: str) -> int:
    """Java's String.hashCode: signed 32 bit."""
