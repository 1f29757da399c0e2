from enum import IntEnum
from mmap import mmap
from typing import final

from firearrow._native.store.record import Record

class End(IntEnum):
    """Why a walk ended."""

    LIMIT = 0
    """`stop`, or as many records or bytes as were asked for."""
    BLANK = 1
    """The segment ends here."""
    UNWRITTEN = 2
    """Zeros: nothing was written here yet."""
    TORN = 3
    """Bytes that are no whole record, or one whose place does not fit."""
    BAD_CRC = 4
    """The record's body does not match its crc; its size is known: `next_record` of it."""

@final
class Spans:
    """Whole records in one window of bytes. `base`: physical offset of the window's first byte. Any thread."""

    count: int
    bytes: int
    """Of all records together."""
    base: int
    length: int
    """Of the window, bytes."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Record:
        """Decoded whole; slow. IndexError; RecordError if the bytes have changed meanwhile."""
    def position(self, index: int) -> int:
        """Where record `index` starts in the window."""
    def size(self, index: int) -> int: ...
    def queue_offset(self, index: int) -> int: ...
    def store_ms(self, index: int) -> int: ...
    def sys_flag(self, index: int) -> int: ...
    def topic(self, index: int) -> str: ...
    def properties(self, index: int) -> dict[str, str]: ...
    def slice(self, start: int, stop: int) -> "Spans":
        """Records [start, stop) on the same window."""

def walk(
    window: bytes | bytearray | memoryview | mmap,
    start: int,
    stop: int,
    *,
    base: int = 0,
    check_crc: bool = False,
    count_max: int = ...,
    bytes_max: int = ...,
) -> tuple[Spans, int, End]:
    """Records one behind the other from position `start`, as long as they begin before `stop`: (records, next position, why it ended).

    A record's physical offset must be `base` + its position. At BAD_CRC the next position is behind that record, which is left out.
    """

def from_entries(
    window: bytes | bytearray | memoryview | mmap, entries: bytes | bytearray | memoryview | mmap, *, base: int, first: int, tags: frozenset[int] | None = None
) -> tuple[Spans, int]:
    """Records of consume queue entries (20 bytes each, big-endian), the first of which has queue offset `first`: (records, entries used).

    Stops at an entry that lies outside of the window [base, base + length). Entries whose tags code is not in `tags`
    are passed over before the log is touched; a code is Java's hash of the tag. RecordError names the queue offset of
    an entry that shows no whole record with that offset.
    """

def from_answer(body: bytes | bytearray | memoryview | mmap) -> Spans:
    """The records of a pull's answer. RecordError: it is no row of whole records."""
