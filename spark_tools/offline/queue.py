"""StoredQueue: one queue of one store: its entries and the records they point to. Offsets are queue offsets.

The readable range (`queue_reader.py`) starts at the first entry whose record is still in the log and ends
after the last entry whose record is whole: a power failure leaves entries that point past the end of the
log. Ends are exclusive. One thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np

from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.queue_reader import ENTRY, PRE_BLANK_SIZE, Entry, QueueReader
from firearrow._native.offline.segment_files import segment_at
from firearrow._native.store.log.record import RecordError
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import LMQ_PREFIX, RecordId

FIELDS = np.dtype([("physical", ">i8"), ("size", ">i4"), ("code", ">i8")])
"""The fields of an array of entries."""
ENTRIES_AT_ONCE = 16384
ENTRIES_SCANNED = 1000
"""Entries that are checked one by one when looking for a whole record."""
READS_OF_LAST = 2
"""Reads of the last record: its entry may have been half written at the first read."""
ENTRIES_SUMMED = 1 << 20
"""Of a longer range only about this many entries are added up, evenly spread."""


class StoredQueue:
    """`log_end()` returns the end of the store's log; called only if the queue's last record is not whole."""

    def __init__(self, queue: MessageQueue, folder: str, log: LogFiles, log_end: Callable[[], int]) -> None:
        self.queue = queue
        self.entries = QueueReader(folder)
        self.log = log
        self._end_of_log = log_end
        self.is_lmq = queue.topic.startswith(LMQ_PREFIX)
        self.of = None if self.is_lmq else (queue.topic, queue.queue_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.entries.close()

    # ---- the readable range ----

    def bounds(self) -> tuple[int, int]:
        """The first readable offset and the end, as of now."""
        self.entries.refresh()
        first, end = self.entries.first, self.entries.end()
        first = self._first(first, end)
        return first, self._whole_end(first, end)

    def last_whole(self) -> int:
        """The physical end of the last whole record; 0 if none is found.

        Checks the last entries one by one, then in growing steps: a power failure leaves many entries
        without records.
        """
        self.entries.refresh()
        end = self.entries.end()
        first = self._first(self.entries.first, end)
        low, checked = end - 1, 0
        while low >= first and self._record(low) is None:
            checked += 1
            low -= max(1, checked - ENTRIES_SCANNED)
        if low < first:
            return 0
        high = min(end, low + max(1, checked - ENTRIES_SCANNED))
        last = low + bisect_left(range(low + 1, high), True, key=lambda number: self._record(number) is None)
        entry = self.entries.at(last)
        return 0 if entry is None else entry.end

    def _first(self, first: int, end: int) -> int:
        if not self.log.segments:
            self.log.refresh()  # the broker's first message may have arrived since the last listing
        if not self.log.segments:
            return end
        low = self.log.first

        def is_stored(number: int) -> bool:
            """Also true if the entry's file no longer exists: it is reported as lost when it is read."""
            entry = self.entries.at(number)
            return entry is None or (not entry.is_blank and entry.physical >= low)

        if first == end or is_stored(first):
            return first
        return first + bisect_left(range(first, end), True, key=is_stored)

    def _whole_end(self, first: int, end: int) -> int:
        if end <= first or any(self._record(end - 1) is not None for _ in range(READS_OF_LAST)):
            return end
        log_end = self._end_of_log()

        def is_beyond(number: int) -> bool:
            entry = self.entries.at(number)
            return entry is not None and entry.end > log_end

        return first + bisect_left(range(first, end), True, key=is_beyond)

    def _record(self, number: int) -> Spans | None:
        """The record of one entry; None: there is no whole record."""
        data = self.entries.read(number, number + 1)
        entry = Entry(*ENTRY.unpack(data)) if data else None
        record = b"" if entry is None else self.log.record(entry.physical, entry.size)
        if entry is None or not record:
            return None
        try:
            return from_entries(
                record, data, base=entry.physical, first=number, queue=self.of, is_lmq=self.is_lmq
            )[0]
        except RecordError:
            return None

    def record_id(self, number: int) -> RecordId | None:
        """The record of an entry; None: there is no whole record."""
        self.entries.refresh()
        found = self._record(number)
        return None if found is None else RecordId(number, found.base + found.position(0), found.store_ms(0))

    def offset_at(self, ms: int) -> int:
        """The first offset stored at `ms` or later; the end if there is none.

        A record that cannot be read counts as stored with the next readable one, so that it is read and
        reported lost.
        """
        first, end = self.bounds()

        def is_later(number: int) -> bool:
            for _ in range(ENTRIES_SCANNED):
                if number >= end:
                    break
                record = self._record(number)
                if record is not None:
                    return record.store_ms(0) >= ms
                number = self._next_present(number, end)
            return True

        return first + bisect_left(range(first, end), True, key=is_later)

    def _next_present(self, number: int, end: int) -> int:
        """The next entry; past a missing file of entries or of the log, the first entry after the gap."""
        physical = self.physical_offset(number)
        if physical is None:
            following = self.entries.next_present(number)
            return end if following is None else following
        if segment_at(self.log.segments, physical) is not None:
            return number + 1
        base = self.log.next_file(physical)
        return number + 1 if base is None else max(number + 1, self.offset_from(base, number, end))

    def physical_offset(self, number: int) -> int | None:
        """The physical offset in an entry within `bounds`; None if the entry's file no longer exists."""
        entry = self.entries.at(number)
        return None if entry is None else entry.physical

    def physical_offsets(self, start: int, end: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """The physical offsets in entries [start, end) within `bounds`; fewer if a file of them no longer exists."""
        runs = [rows for _, rows in self.entries.runs(start, end, ENTRIES_AT_ONCE)]
        return np.frombuffer(b"".join(runs), FIELDS)["physical"].astype(np.int64)

    def all_entries(self) -> "Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]":
        """All entries that have files, with the fields of FIELDS."""
        self.entries.refresh()
        for _, rows in self.entries.runs(self.entries.first, self.entries.end(), ENTRIES_AT_ONCE):
            yield np.frombuffer(rows, FIELDS)

    def offset_from(self, physical: int, start: int, end: int) -> int:
        """The first of [start, end), within `bounds`, whose record is at or after this physical offset."""

        def is_at_or_after(number: int) -> bool:
            found = self.physical_offset(number)
            return found is not None and found >= physical

        return start + bisect_left(range(start, end), True, key=is_at_or_after)

    def bytes_of(self, start: int, end: int) -> int:
        """Log bytes of [start, end); an estimate for very long ranges."""
        self.entries.refresh()
        start, end = max(start, self.entries.first), min(end, self.entries.end())
        count = end - start
        step = max(ENTRIES_AT_ONCE, count * ENTRIES_AT_ONCE // ENTRIES_SUMMED)
        summed = seen = 0
        for at in range(start, end, step):
            stop = min(end, at + ENTRIES_AT_ONCE)
            for _, rows in self.entries.runs(at, stop, ENTRIES_AT_ONCE):
                sizes = np.frombuffer(rows, FIELDS)["size"]
                summed += int(sizes[(sizes > 0) & (sizes < PRE_BLANK_SIZE)].sum(dtype=np.int64))
            seen += stop - at
        return summed * count // seen if seen else 0
