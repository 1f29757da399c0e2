import builtins
from collections.abc import Iterable
from enum import IntEnum
from mmap import mmap
from typing import final

from firearrow._native.store.log.record import Record

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
    def queue_id(self, index: int) -> int: ...
    def queue_offset(self, index: int) -> int: ...
    def store_ms(self, index: int) -> int: ...
    def sys_flag(self, index: int) -> int: ...
    def topic(self, index: int) -> str: ...
    def properties(self, index: int) -> dict[str, str]: ...
    def values(self, index: int, names: dict[builtins.bytes, str]) -> dict[str, str]:
        """Those properties whose names (UTF-8 → as asked for) are among `names`; the last of equal names."""
    def record(self, index: int) -> memoryview:
        """Its bytes in the window, read-only; they keep the window."""
    def wrong_bodies(self) -> list[int]:
        """Indexes of records whose bodies do not match their crcs, in order."""
    def slice(self, start: int, stop: int) -> Spans:
        """Records [start, stop) on the same window."""
    def take(self, indexes: Iterable[int]) -> Spans:
        """The records with these indexes, in the order given, on the same window. IndexError."""

Window = bytes | bytearray | memoryview | mmap

def walk(
    window: Window,
    start: int,
    stop: int,
    *,
    base: int = 0,
    check_crc: bool = False,
    count_max: int = ...,
    bytes_max: int = ...,
) -> tuple[Spans, int, End]:
    """Records one behind the other from position `start`, as long as they begin before `stop`: (records, next position,
    why it ended).

    A record's physical offset must be `base` + its position. At BAD_CRC the next position is behind that record, which
    is left out.
    """

def find(window: Window, start: int, stop: int, *, base: int = 0) -> int:
    """Position of the first whole record that begins in [start, stop) and holds `base` + position as its physical
    offset; -1: none.

    Where a walk lost its way: what stands in between is not trusted. A message body can hold what looks like a record
    of its place only if its producer knew that place beforehand.
    """

def from_answer(body: Window) -> Spans:
    """The records of a pull's answer. RecordError: it is no row of whole records."""
