"""QueueReader: reads the entries of one consume queue, 20 bytes each: physical offset, size, tags code.

BatchQueueReader shows the queue of a BatchCQ topic in the same form: a batch has its entry at its first offset, and
blanks at the others.

Copies them with `pread`, so that they cannot change while they are used. Does not read the log. One thread.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from firearrow._native.offline.segment_files import SegmentFile, next_base, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable

ENTRY = struct.Struct(">qiq")
BATCH_ENTRY = struct.Struct(">qiqqqhii")
"""Physical offset, size, tags code, store time, queue offset of the first message, messages, -1, 0."""
BATCHES_AT_ONCE = 4096
BATCH_FOLDER = "batchconsumequeue"
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
    """Entry n is at byte n x `row_bytes` of the concatenated files in `folder`. Keeps one file open at a time."""

    def __init__(self, folder: str, row_bytes: int = ENTRY.size) -> None:
        self.folder = folder
        self._row_bytes = row_bytes
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
        return -(-self._files[0].base // self._row_bytes) if self._files else 0

    def end(self) -> int:
        """Number after the last written entry. Later files are empty."""
        for file in reversed(self._files):
            low, high = -(-file.base // self._row_bytes), file.end // self._row_bytes
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
        return Entry(*ENTRY.unpack_from(data)) if data else None

    def read(self, start: int, stop: int) -> bytes:
        """Whole entries from `start`, up to the end of their file; none if no file has them.
        StoreUnreadable."""
        file = segment_at(self._files, start * self._row_bytes)
        if file is None or not self._open(file.path):
            return b""
        count = min(stop, file.end // self._row_bytes) - start
        if count <= 0:
            return b""
        try:
            data = os.pread(self._fd, count * self._row_bytes, start * self._row_bytes - file.base)
        except OSError as error:
            raise StoreUnreadable(f"{file.path} cannot be read: {error.strerror}") from None
        return data[: len(data) - len(data) % self._row_bytes]

    def runs(self, start: int, stop: int, count_max: int) -> Iterator[tuple[int, bytes]]:
        """The entries of [start, stop) that a file has, as (number of the first, at most `count_max` whole
        entries)."""
        at: int | None = start
        while at is not None and at < stop:
            rows = self.read(at, min(stop, at + count_max))
            if rows:
                yield at, rows
            at = at + len(rows) // self._row_bytes if rows else self.next_present(at)

    def next_present(self, number: int) -> int | None:
        """The first entry after `number` that a file has."""
        base = next_base(self._files, number * self._row_bytes)
        return None if base is None else -(-base // self._row_bytes)

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


class BatchQueueReader(QueueReader):
    """Offsets count messages, as in the queue itself; entries have the form of a plain queue's."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._batches = QueueReader(folder, BATCH_ENTRY.size)

    def refresh(self) -> None:
        self._batches.refresh()

    def close(self) -> None:
        self._batches.close()

    @property
    def first(self) -> int:
        """Offset of the first message whose entry has a file."""
        found = self._batch(self._batches.first)
        return 0 if found is None else found[0]

    def end(self) -> int:
        found = self._batch(self._batches.end() - 1)
        return 0 if found is None else found[1]

    def at(self, number: int) -> Entry | None:
        """The entry of the batch that has the message."""
        at = self._find(number)
        found = self._batch(at)
        return self._batches.at(at) if found is not None and found[0] <= number else None

    def read(self, start: int, stop: int) -> bytes:
        rows = bytearray()
        at, number = start, self._find(start)
        while at < stop and (batches := self._batches.read(number, number + BATCHES_AT_ONCE)):
            for physical, size, code, _, base, count, _, _ in BATCH_ENTRY.iter_unpack(batches):
                if at >= stop or size <= 0 or (not rows and base > at):
                    return bytes(rows)
                if at < base:  # messages that were lost
                    rows += ENTRY.pack(physical - 1, PRE_BLANK_SIZE, 0) * (min(base, stop) - at)
                    at = min(base, stop)
                if at == base < stop:
                    rows += ENTRY.pack(physical, size, code)
                    at += 1
                rest = min(base + count, stop) - at
                if rest > 0:
                    rows += ENTRY.pack(physical, PRE_BLANK_SIZE, 0) * rest
                    at += rest
            number += len(batches) // BATCH_ENTRY.size
        return bytes(rows)

    def next_present(self, number: int) -> int | None:
        found = self._batch(self._find(number + 1))
        return None if found is None else max(found[0], number + 1)

    def _find(self, offset: int) -> int:
        """The first batch that ends after the offset."""
        low, high = self._batches.first, self._batches.end()
        while low < high:
            middle = (low + high) // 2
            found = self._batch(middle)
            if found is not None and found[1] > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def _batch(self, number: int) -> tuple[int, int] | None:
        """The offsets [first, end) of a batch's messages; None if it is not written."""
        data = self._batches.read(number, number + 1) if number >= 0 else b""
        if not data:
            return None
        _, size, _, _, base, count, _, _ = BATCH_ENTRY.unpack(data)
        return (base, base + count) if size > 0 and base >= 0 and count > 0 else None


def reader_of(folder: str) -> QueueReader:
    """For a queue in `consumequeue` or in `batchconsumequeue`."""
    return BatchQueueReader(folder) if is_batch_folder(folder) else QueueReader(folder)


def is_batch_folder(folder: str) -> bool:
    return os.path.basename(os.path.dirname(os.path.dirname(folder))) == BATCH_FOLDER
