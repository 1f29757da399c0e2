from typing_extensions import Buffer

CRC_WAYS: int
"""Number of CRC implementations that this processor supports; 0 works everywhere, higher ones are faster."""

def crc32(data: Buffer, way: int | None = None) -> int:
    """CRC-32 with the top bit cleared, as records have it. `way`: implementation, None: the fastest.

    ValueError: this processor does not support it.
    """

def java_hash(text: str) -> int:
    """Java's String.hashCode: signed, 32 bits."""

def key_hash(topic: str, key: str) -> int:
    """The hash under which the index has a message's key or unique id."""
