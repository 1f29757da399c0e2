from typing import final

from firearrow._native.store.message_store import MessageStore

MIB_BYTES: int
KEPT_MAX: int
"""Most MiBs whose checksum is kept; those computed first are forgotten."""

@final
class LogChecksums:
    """CRC-32C of ranges of the log. A whole MiB (its offset is a multiple of 1 MiB) is read once; what is not kept
    costs the loop 0.2 to 0.6 ms a MiB, or the reading from the disk.

    LookupError: the log does not have the range. OSError.
    """

    def __init__(self, store: MessageStore) -> None: ...
    def between(self, start: int, end: int) -> int:
        """Of the bytes from `start` to `end`."""
    def chained(self, start: int, end: int) -> list[int]:
        """Of `start` to each later multiple of 1 MiB, and to `end`: where two logs differ, so do all later ones.
        ValueError: `start` is no multiple."""
    def drop_from(self, offset: int) -> None:
        """The log was truncated here: forget what came later. To be called before the log grows again."""
    @property
    def kept_count(self) -> int: ...
