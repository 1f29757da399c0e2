from typing_extensions import Buffer

CRC_WAYS: int
"""Number of CRC implementations that this processor supports; 0 works everywhere, higher ones are faster."""

CRC32C_WAYS: int
"""The same for CRC-32C."""

def crc32(data: Buffer, way: int | None = None) -> int:
    """CRC-32 with the top bit cleared, as records have it. `way`: implementation, None: the fastest.

    ValueError: this processor does not support it.
    """

def crc32c(data: Buffer, crc: int = 0, way: int | None = None) -> int:
    """CRC-32C, 32 bits without a sign; `crc`: that of the bytes before. `way`: as for `crc32`. ValueError."""

def java_hash(text: str) -> int:
    """Java's String.hashCode: signed, 32 bits."""

def key_hash(topic: str, key: str) -> int:
    """The hash under which the index has a message's key or unique id."""
