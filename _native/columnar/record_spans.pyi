import builtins
from collections.abc import Iterable
from enum import IntEnum
from mmap import mmap
from typing import final

from firearrow._native.store.log.record import Record

class End(IntEnum):
    """Why a walk ended."""

    LIMIT = 0
    """`stop`, `count_max` or `bytes_max` was reached."""
    BLANK = 1
    """The segment ends here."""
    UNWRITTEN = 2
    """Zeros: nothing has been written here yet."""
    TORN = 3
    """The bytes are not a whole record, or its physical offset is wrong."""
    BAD_CRC = 4
    """The record's body does not match its crc; its size is known: `next_record` of it."""

@final
class Spans:
    """Whole records in one window of bytes. `base`: physical offset of its first byte. Any thread."""

    count: int
    bytes: int
    """Of all records together."""
    base: int
    length: int
    """Of the window, bytes."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Record:
        """Decode the whole record; slow. IndexError. RecordError: the bytes have changed since it was found."""
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
        """Properties whose names are in `names` (UTF-8 → the caller's name); of equal names the last."""
    def record(self, index: int) -> memoryview:
        """The record's bytes in the window, read-only; the memoryview keeps the window."""
    def wrong_bodies(self) -> list[int]:
        """Indexes of records whose bodies do not match their CRCs, in order."""
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
    """Find consecutive records from position `start` that begin before `stop`: (records, next position, why it
    ended).

    A record's physical offset must be `base` + its position. At BAD_CRC the next position is after that record,
    which is left out.
    """

def find(window: Window, start: int, stop: int, *, base: int = 0) -> int:
    """Position of the first whole record that begins in [start, stop) and has the physical offset `base` +
    position; -1: none.

    Use it where a walk cannot continue: the bytes in between are not trusted. A message body can hold a false
    record for its position only if its producer knew the position beforehand.
    """

def from_answer(body: Window) -> Spans:
    """The records of a pull response. RecordError: the body does not consist of whole records."""
