"""QueueReader: reads the entries of one consume queue, 20 bytes each: physical offset, size, tags code.

Copies them with `pread`, so that they cannot change while they are used. Does not read the log. One thread.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from firearrow._native.offline.segment_files import SegmentFile, next_base, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable

ENTRY = struct.Struct(">qiq")
PRE_BLANK_SIZE = 0x7FFFFFFF
"""Size in the blank entries before the first one, where a queue began in the middle of a file."""


class Entry(NamedTuple):
    physical: int
    size: int
    code: int

    @property
    def is_blank(self) -> bool:
        return self.size == PRE_BLANK_SIZE

    @property
    def is_written(self) -> bool:
        return self.physical >= 0 and self.size > 0

    @property
    def end(self) -> int:
        return self.physical + self.size


class QueueReader:
    """Entry n is at byte n x 20 of the concatenated files in `folder`. Keeps one file open at a time."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._files: list[SegmentFile] = []
        self._path = ""
        self._fd = -1

    def refresh(self) -> None:
        """List the files again. StoreUnreadable."""
        self.close()
        self._files = rolled_files(self.folder)

    @property
    def first(self) -> int:
        """Number of the first entry that has a file."""
        return -(-self._files[0].base // ENTRY.size) if self._files else 0

    def end(self) -> int:
        """Number after the last written entry. Later files are empty."""
        for file in reversed(self._files):
            low, high = -(-file.base // ENTRY.size), file.end // ENTRY.size
            begin = low
            while low < high:
                middle = (low + high) // 2
                entry = self.at(middle)
                if entry is not None and entry.is_written:
                    low = middle + 1
                else:
                    high = middle
            if low > begin:
                return low
        return self.first

    def at(self, number: int) -> Entry | None:
        """None: no file has it."""
        data = self.read(number, number + 1)
        return Entry(*ENTRY.unpack(data)) if data else None

    def read(self, start: int, stop: int) -> bytes:
        """Whole entries from `start`, up to the end of their file; none if no file has them.
        StoreUnreadable."""
        file = segment_at(self._files, start * ENTRY.size)
        if file is None or not self._open(file.path):
            return b""
        count = min(stop, file.end // ENTRY.size) - start
        if count <= 0:
            return b""
        try:
            data = os.pread(self._fd, count * ENTRY.size, start * ENTRY.size - file.base)
        except OSError as error:
            raise StoreUnreadable(f"{file.path} cannot be read: {error.strerror}") from None
        return data[: len(data) - len(data) % ENTRY.size]

    def runs(self, start: int, stop: int, count_max: int) -> Iterator[tuple[int, bytes]]:
        """The entries of [start, stop) that a file has, as (number of the first, at most `count_max` whole
        entries)."""
        at: int | None = start
        while at is not None and at < stop:
            rows = self.read(at, min(stop, at + count_max))
            if rows:
                yield at, rows
            at = at + len(rows) // ENTRY.size if rows else self.next_present(at)

    def next_present(self, number: int) -> int | None:
        """The first entry after `number` that a file has."""
        base = next_base(self._files, number * ENTRY.size)
        return None if base is None else -(-base // ENTRY.size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, ""

    def _open(self, path: str) -> bool:
        if path == self._path:
            return True
        self.close()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnreadable(f"{path} cannot be opened: {error.strerror}") from None
        self._path = path
        return True
