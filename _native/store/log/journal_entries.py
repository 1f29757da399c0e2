"""The entries of a file of the progress journal (`broker.append.progress_journal`). Pure; any thread.

Layout, big-endian: an entry is crc32 u32 (of all that follows), kind u8, length of the name u16, number i32,
value i64, end i64, name. A file ends at the first entry that is incomplete.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

HEAD = struct.Struct(">IBHiqq")
SPARE = "spare"
"""The file that is kept for a full disk; it has no entries."""


class Entry(NamedTuple):
    """The kind defines what `name`, `number` and `value` mean."""

    kind: int
    name: str
    number: int
    value: int
    end: int


def entries_of(data: bytes) -> Iterator[Entry]:
    """The entries of a file, up to the first incomplete one."""
    for start, stop in _spans(data):
        _, kind, _, number, value, end = HEAD.unpack_from(data, start)
        yield Entry(kind, data[start + HEAD.size : stop].decode("utf-8", "replace"), number, value, end)


def end_of(data: bytes) -> int:
    """Where the last valid entry of a file ends."""
    return max((stop for _, stop in _spans(data)), default=0)


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each valid entry begins and ends."""
    start = 0
    while start + HEAD.size <= len(data):
        crc, kind, length, *_ = HEAD.unpack_from(data, start)
        stop = start + HEAD.size + length
        if kind == 0 or stop > len(data) or zlib.crc32(data[start + 4 : stop]) != crc:
            return
        yield start, stop
        start = stop
