"""StoredRangeReader: reads a range of a stored queue; filters tags on the entries.

Records that entries point to but the log does not have are reported as lost, whether a file no longer exists or
damaged. Mapped files stay readable even if a broker deletes them. LossRanges joins adjacent losses. One
thread, that of the store.
"""

from collections.abc import Iterator

import numpy as np

from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.offline.queue_reader import ENTRY, Entry
from firearrow._native.store.log.record import RecordError
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.body_check import with_valid_crc
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.filter_eval import FilterEvaluator
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange
from firearrow.spark_tools.offline.queue import ENTRIES_AT_ONCE, FIELDS, StoredQueue


class LossRanges:
    """Reports lost offsets of one queue to `on_data_loss`, adjacent ones with the same reason as one range.

    Exceptions of `on_data_loss` propagate.
    """

    def __init__(self, queue: MessageQueue, on_data_loss: OnDataLoss) -> None:
        self._queue = queue
        self._on_data_loss = on_data_loss
        self._start = self._end = 0
        self._why = ""

    def add(self, start: int, end: int, why: str) -> None:
        """Add queue offsets [start, end), which come after those added before; an empty range is ignored."""
        if end <= start:
            return
        if self._end > self._start and (start != self._end or why != self._why):
            self.report()
        if self._end <= self._start:
            self._start, self._why = start, why
        self._end = end

    def report(self) -> None:
        """Report the pending range, if any."""
        start, end, self._start = self._start, self._end, self._end
        if end > start:
            self._on_data_loss(QueueRange(self._queue, start, end), self._why)


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Its entries hold the time of delivery instead of the tags code."""


class StoredRangeReader:
    """`bytes_max`: about this many bytes of records at once. InvalidOption: the filter's SQL92 expression
    is invalid."""

    def __init__(
        self, queue: StoredQueue, message_filter: MessageFilter, on_data_loss: OnDataLoss, bytes_max: int
    ) -> None:
        self._queue = queue
        self._evaluator = FilterEvaluator(message_filter)
        self._tags = None if queue.queue.topic == SCHEDULE_TOPIC else message_filter.tag_codes()
        self._check_crc = message_filter.check_crc
        self._on_data_loss = on_data_loss
        self._losses = LossRanges(queue.queue, on_data_loss)
        self._bytes_max = max(1, bytes_max)

    def spans(self, start: int, end: int) -> Iterator[Spans]:
        """The messages of queue offsets [start, end) that match, in order."""
        first, last = self._queue.bounds()
        losses, entries = self._losses, self._queue.entries
        losses.add(start, min(first, end), "they are not in the store any more")
        losses.add(max(last, start), end, "the store ends before them")
        losses.report()
        at, end = max(start, first), min(end, last)
        for number, rows in entries.runs(at, end, ENTRIES_AT_ONCE):
            losses.add(at, number, f"no file in {entries.folder} has their entries")
            for spans in self._run(number, rows):
                kept = self._evaluator.keep(spans)
                if self._check_crc:
                    kept = with_valid_crc(kept, self._queue.queue, self._on_data_loss)
                if len(kept):
                    losses.report()
                    yield kept
            at = number + len(rows) // ENTRY.size
        losses.add(at, end, f"no file in {entries.folder} has their entries")
        losses.report()

    def _run(self, number: int, rows: bytes) -> Iterator[Spans]:
        """The records of the entries `rows`, the first of which has queue offset `number`."""
        done, count, view, log = 0, len(rows) // ENTRY.size, memoryview(rows), self._queue.log
        while done < count:
            mapping = log.window(Entry(*ENTRY.unpack_from(rows, done * ENTRY.size)).physical)
            if mapping is None:
                following = self._after_gap(rows, done)
                self._losses.add(number + done, number + following, f"no file in {log.folder} has them")
                done = following
                continue
            try:
                spans, used = from_entries(
                    mapping.window,
                    view[done * ENTRY.size :],
                    base=mapping.base,
                    first=number + done,
                    tags=self._tags,
                    bytes_max=self._bytes_max,
                    queue=self._queue.of,
                    is_lmq=self._queue.is_lmq,
                )
            except RecordError:
                why = f"their entries in {self._queue.entries.folder} do not point to their records"
                self._losses.add(number + done, number + done + 1, why)
                done += 1
                continue
            done += used
            if len(spans):
                yield spans

    def _after_gap(self, rows: bytes, done: int) -> int:
        """The next entry whose record may be in another file than that of entry `done`, which is missing."""
        physicals = np.frombuffer(rows, FIELDS)["physical"][done:]
        gap_end = self._queue.log.next_file(int(physicals[0]))
        outside = physicals < physicals[0]
        if gap_end is not None:
            outside |= physicals >= gap_end
        return done + (int(outside.argmax()) if outside.any() else len(outside))
