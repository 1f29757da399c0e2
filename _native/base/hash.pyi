from typing_extensions import Buffer

CRC_WAYS: int
"""How many ways of making a CRC this processor has; 0 is everybody's, each is faster than the one before."""

def crc32(data: Buffer, way: int | None = None) -> int:
    """CRC-32 with the top bit cleared, as records hold it; in the fastest way if none is told.

    ValueError: this processor has no such way.
    """

def java_hash(text: str) -> int:
    """Java's String.hashCode: signed 32 bit."""

def key_hash(topic: str, key: str) -> int:
    """Under which the index has a key of a topic's message, or its unique id."""
