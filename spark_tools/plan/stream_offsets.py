"""Offsets of a stream: where it starts, how far the next micro-batch goes, how large its lag is.

- StreamCursor lives as long as the stream, in one process. Its reader stays open; Spark never closes it. One
  thread.
- RateLimits limit a micro-batch to a number of messages or bytes, or delay it until there are enough. One for
  each stream, one thread; the clock is passed in.
- StreamLag counts the messages between a stream's offsets and the ends of its queues. Pure.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from firearrow.client.base.errors import NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, Source, SourceReader
from firearrow.spark_tools.plan.batch import keyed, sized, splits_of
from firearrow.spark_tools.plan.data_loss import DataLosses
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import (
    RECREATED,
    QueueRecordCheck,
    QueueRecords,
    StreamOffsets,
)
from firearrow.spark_tools.plan.splits import InputSplit
from firearrow.spark_tools.plan.start_end import Bounds, OffsetResolver, available_part
from firearrow.spark_tools.plan.topics import TopicSelection, when_there

CUTS_MAX = 8
log = logging.getLogger("firearrow.spark")
SizeOf = Callable[[QueueRange], int]


@dataclass(slots=True)
class RateLimits:
    """0: no limit."""

    messages_max: int = 0
    bytes_max: int = 0
    messages_min: int = 0
    delay_max_s: float = 900.0
    clock: Callable[[], float] = field(kw_only=True)
    """Seconds, monotonic."""
    _taken_at: float = field(init=False)
    """When a micro-batch last got messages."""

    def __post_init__(self) -> None:
        self._taken_at = self.clock()

    def end(
        self,
        starts: Mapping[MessageQueue, int],
        ends: Mapping[MessageQueue, int],
        size_of: SizeOf,
        at_once: bool,
    ) -> Offsets:
        """The end of a batch from `starts`, at most `ends`; both have the same queues. `at_once`: no more
        messages will come, so do not wait for the minimum."""
        ranges = [QueueRange(queue, start, ends[queue]) for queue, start in starts.items()]
        waiting = sum(map(len, ranges))
        now = self.clock()
        if not at_once and waiting < self.messages_min and now - self._taken_at < self.delay_max_s:
            return dict(starts)
        self._taken_at = now
        if 0 < self.messages_max < waiting:
            ranges = shared(ranges, self.messages_max)
        if self.bytes_max:
            ranges = within_bytes(ranges, self.bytes_max, size_of)
        return {part.queue: part.end for part in ranges}


def shared(ranges: list[QueueRange], messages: int) -> list[QueueRange]:
    """The first part of each range, in proportion to its length, about `messages` in total; at least one of
    each."""
    waiting = sum(map(len, ranges))
    cut: list[QueueRange] = []
    for part in sorted(
        ranges, key=len
    ):  # smallest first: what they get beyond their share is taken from larger ones
        share = min(len(part), max(1, len(part) * messages // max(1, waiting)))
        share = share if len(part) else 0
        waiting, messages = waiting - len(part), max(0, messages - share)
        cut.append(QueueRange(part.queue, part.start, part.start + share))
    return cut


def within_bytes(ranges: list[QueueRange], bytes_max: int, size_of: SizeOf) -> list[QueueRange]:
    """The first part of each range, about `bytes_max` in total; at least one message of each. Body sizes
    vary, so each is cut again by the real size of its first part."""
    sizes = [size_of(part) if len(part) else 0 for part in ranges]
    total = sum(sizes)
    if total <= bytes_max:
        return ranges
    return [
        _cut(part, size * bytes_max // total, size, size_of) for part, size in zip(ranges, sizes, strict=True)
    ]


def _cut(part: QueueRange, limit: int, size: int, size_of: SizeOf) -> QueueRange:
    count = len(part)
    for _ in range(CUTS_MAX):
        if size > limit and count > 1:
            count = max(1, count * limit // size)
            size = size_of(QueueRange(part.queue, part.start, part.start + count))
    return QueueRange(part.queue, part.start, part.start + count)


Records = dict[MessageQueue, QueueRecords]
Compared = tuple[int, QueueRecords, tuple[int, int]]
"""Offset, records and bounds of a queue."""
REFRESH_S = 0.2
"""How long bounds are cached: Spark polls a hundred times a second."""
RELIST_S = 5.0
"""How often queues and topics are listed, to find new ones."""


class StreamCursor:
    def __init__(
        self,
        message_source: Source,
        options: SourceOptions,
        *,
        lost: OnDataLoss | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`lost` is called once for each range that is only logged, and with an empty range for a queue that is
        read again from an earlier offset."""
        self._message_source = message_source
        self._options = options
        self._clock = clock
        self._pause = pause
        self._reader: SourceReader | None = None
        self._queues: list[MessageQueue] = []
        self._listed_at: float | None = None
        self._bounds: dict[MessageQueue, tuple[int, int]] = {}
        self._looked_at: float | None = None
        self._first: StreamOffsets | None = None
        self._planned: StreamOffsets | None = None
        """The end of the last batch."""
        self._pinned: Offsets | None = None
        self._lost = lost
        self._losses = DataLosses(options.fail_on_loss, lost)
        self._shortened: set[MessageQueue] = set()
        """Queues that end before the stream's offset and were reported."""
        self._ends: Offsets = {}
        """The ends of queues, as they were when their records were those of the stream's offsets."""
        self._compared: dict[MessageQueue, tuple[Compared, int | None]] = {}
        """What was compared since the queues were listed; if it differs, the first unread offset."""
        self._unreadable: Offsets = {}
        """Up to where queues that are not listed any more were reported as lost."""
        self._absent: dict[MessageQueue, tuple[int, int]] = {}
        """Bounds of queues that are not listed any more, since the others were listed."""
        self._limits = RateLimits(
            options.trigger_messages,
            options.trigger_bytes,
            options.trigger_messages_min,
            options.trigger_delay_s,
            clock=clock,
        )

    def first(self) -> StreamOffsets:
        """Where a new stream starts; computed once."""
        if self._first is None:
            options = self._options
            when_there(self._list, options.wait_s, self._clock, self._pause)
            bounds = self._look()
            resolution = OffsetResolver(self._open(), self._losses, options.strategy)
            starts = resolution.starts(options.start_point(STREAM), bounds)
            self._losses.check()
            self._first = self._check().named(StreamOffsets({}), starts, bounds)
        return self._first

    def pin(self) -> None:
        """Fix the end of the stream at the current ends of its queues."""
        when_there(self._list, self._options.wait_s, self._clock, self._pause)
        self._pinned = self.newest()

    def newest(self) -> Offsets:
        """The end of every queue, regardless of limits."""
        return {queue: end for queue, (_, end) in self._look().items()}

    def end(self, starts: Mapping[MessageQueue, int], limited: bool) -> StreamOffsets:
        """The end of a batch from `starts`, never before it, except in queues that have other records now:
        their first unread record. Queues not in `starts` begin at their first message. DataLoss: a queue no
        longer exists, or unread messages no longer exist."""
        given = StreamOffsets.of(starts)
        bounds = self._look()
        if self._changed(given, bounds):  # perhaps since the bounds were read
            bounds = self._look(again=True)
        changed = self._changed(given, bounds)
        gone = self._report_loss(given, bounds, changed)
        begins = StreamOffsets({**given, **changed}, self._kept(given, changed, gone))
        ends = dict(begins)
        for queue, (first, last) in bounds.items():
            end = last if self._pinned is None else min(last, self._pinned.get(queue, begins.get(queue, -1)))
            if queue in given or end >= first:
                begins.setdefault(queue, first)
                ends[queue] = max(begins[queue], end)
        if limited:
            ends = self._limits.end(begins, ends, self._open().bytes_of, self._pinned is not None)
        if ends != given or begins.records != given.records:
            self._planned = self._check().named(begins, ends, bounds)
            return self._planned
        return given

    def parts(self, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[InputSplit]:
        """Splits of the ranges from `starts` to `ends`. DataLoss names the missing ones."""
        given, planned = StreamOffsets.of(starts), StreamOffsets.of(ends)
        bounds, losses = self._look(), DataLosses(self._options.fail_on_loss, self._lost)
        # A batch that is planned again, after a restart, may be of a queue that was changed since.
        changed = (
            {}
            if planned is self._planned or planned == self._planned
            else self._check().changed(planned, bounds)
        )
        ranges = []
        for queue in sorted(planned):
            first, end = bounds.get(queue, (0, 0))
            begin = given.begin(queue, planned, first if queue in bounds else 0)
            requested = QueueRange(queue, begin, planned[queue])
            if queue not in bounds:
                if len(requested):
                    losses(requested, "the queue no longer exists")
                continue
            if begin != given.get(queue, begin):
                self._report_changed(queue, given[queue], begin)
            if queue in changed:
                requested = QueueRange(queue, begin, max(begin, min(changed[queue], requested.end)))
                losses(QueueRange(queue, requested.end, planned[queue]), f"not read before {RECREATED}")
            ranges.append(available_part(requested, first, end, losses))
        losses.check()
        reader = self._open()
        found = [part for part in ranges if len(part)]
        if self._options.by_index:
            found = keyed(found, reader, self._options.message_filter())
        return splits_of([sized(part, reader) for part in found], reader, self._options.split_policy())

    # ---- what is not there any more ----

    def _changed(self, given: StreamOffsets, bounds: Bounds) -> Offsets:
        """The queues with other records than `given` names, and their first unread offset. A queue is compared
        again when its bounds change, and when the queues are listed."""
        fresh = {
            queue: (given[queue], records, bounds[queue])
            for queue, records in given.records.items()
            if queue in given and queue in bounds
        }
        unknown = {queue for queue, state in fresh.items() if self._compared.get(queue, (None,))[0] != state}
        found = (
            self._check().changed(
                StreamOffsets(
                    {queue: given[queue] for queue in unknown},
                    {queue: given.records[queue] for queue in unknown},
                ),
                bounds,
            )
            if unknown
            else {}
        )
        for queue in unknown:
            self._compared[queue] = fresh[queue], found.get(queue)
        states = {queue: self._compared[queue][1] for queue in fresh}
        return {queue: at for queue, at in states.items() if at is not None}

    def _report_changed(self, queue: MessageQueue, read: int, begin: int) -> None:
        """Not a loss, so it ends no stream: an empty range."""
        why = f"{RECREATED} after offset {read} was reached; it is read from offset {begin}"
        log.info("%s@%s:%d: %s", queue.topic, queue.broker_name, queue.queue_id, why)
        if self._lost is not None:
            self._lost(QueueRange(queue, begin, begin), why)

    def _kept(self, given: StreamOffsets, changed: Offsets, gone: set[MessageQueue]) -> Records:
        """The records of `given` that are still those of its queues."""
        kept = {
            queue: replace(records, gone=False) if records.gone and queue not in gone else records
            for queue, records in given.records.items()
            if queue not in changed and (records.known is not None or not records.gone or queue in gone)
        }
        if self._check().can_compare:
            kept |= {queue: replace(kept.get(queue, QueueRecords()), gone=True) for queue in gone}
        return kept

    def _report_loss(self, given: StreamOffsets, bounds: Bounds, changed: Offsets) -> set[MessageQueue]:
        """The queues that do not have the stream's offset any more, or whose topics no longer exist."""
        gone: set[MessageQueue] = set()
        for queue, start in given.items():
            records, seen = given.records.get(queue), self._ends.get(queue, start)
            if queue not in bounds:
                if self._report_absent(queue, start, records):
                    gone.add(queue)
                continue
            end = bounds[queue][1]
            if queue in changed:
                if seen > start:
                    self._losses(QueueRange(queue, start, seen), f"not read before {RECREATED}")
                self._ends.pop(queue, None)
                continue
            if max(start, end) < seen and records is not None:
                self._losses(QueueRange(queue, max(start, end), seen), f"the queue now ends at {end}")
            if end < start:
                self._report_shortened(queue, start, end, records)
                gone |= {queue} if records is not None else set()
            else:
                self._shortened.discard(queue)
            self._ends[queue] = end
        self._losses.check()
        return gone

    def _report_shortened(
        self, queue: MessageQueue, start: int, end: int, records: QueueRecords | None
    ) -> None:
        """A queue that ends before the stream's offset, once. If its records are known, what comes is compared
        with them, so it is read; then only messages that were not read are lost, which may be some if this
        stream was not running."""
        if queue in self._shortened or (records is not None and records.gone):
            return
        self._shortened.add(queue)
        part = QueueRange(queue, end, start)
        why = f"the queue now ends at {end}, before the stream's offset"
        if records is None or (self._options.fail_on_loss and queue not in self._ends):
            self._losses(part, why)
        else:
            log.info("%s: %s; these messages were read", part, why)

    def _report_absent(self, queue: MessageQueue, start: int, records: QueueRecords | None) -> bool:
        """A queue that is not listed any more: whether its topic no longer exists. If not, the source states where the
        queue ends."""
        seen = self._ends.get(queue)
        bounds = self._bounds_of_absent(queue)
        if bounds is not None and (bounds[1] >= start or records is not None):
            reported = max(start, self._unreadable.get(queue, start))
            end = self._unreadable[queue] = max(reported, bounds[1], start if seen is None else seen)
            if end > reported:
                why = "the topic has fewer queues now; increase its readQueueNums to read them"
                self._losses(QueueRange(queue, reported, end), why)
            return False
        if records is None or not records.gone:
            end = start if seen is None else max(start, seen)
            self._ends[queue] = start
            if seen is None or seen > start:
                self._losses(QueueRange(queue, start, end), "the queue no longer exists")
            else:
                log.info(
                    "%s: the queue no longer exists; all of it was read", QueueRange(queue, start, start)
                )
        return True

    def _bounds_of_absent(self, queue: MessageQueue) -> tuple[int, int] | None:
        """None: its topic no longer exists as well."""
        if all((each.topic, each.broker_name) != (queue.topic, queue.broker_name) for each in self._queues):
            return None
        if queue not in self._absent:
            try:
                self._absent |= self._open().bounds([queue])
            except (TopicNotFound, NoRoute):
                return None
        return self._absent.get(queue)

    # ---- the source ----

    def _look(self, *, again: bool = False) -> dict[MessageQueue, tuple[int, int]]:
        """Bounds of the queues, at most REFRESH_S old; `again`: read now."""
        now = self._clock()
        if again or self._looked_at is None or now - self._looked_at >= REFRESH_S:
            if self._listed_at is None or now - self._listed_at >= RELIST_S:
                self._list()
            try:
                self._bounds = self._open().bounds(self._queues)
            except (TopicNotFound, NoRoute):  # deleted since they were listed
                self._bounds = self._open().bounds(self._list())
            self._looked_at = now
        return self._bounds

    def _list(self) -> list[MessageQueue]:
        """List the queues. TopicNotFound only the first time: a topic that disappears later is data loss."""
        wanted, reader = self._options.wanted(), self._open()
        if self._listed_at is None:
            self._queues = wanted.queues_there(reader)
        else:
            self._queues = sorted({queue for one in wanted.singly() for queue in _queues_of(one, reader)})
        self._listed_at = self._clock()
        self._compared.clear()
        self._absent.clear()
        return self._queues

    def _check(self) -> QueueRecordCheck:
        return QueueRecordCheck(self._open())

    def close(self) -> None:
        """Close the reader, which Spark never does."""
        if self._reader is not None:
            self._reader.__exit__(None, None, None)
            self._reader = None

    def _open(self) -> SourceReader:
        if self._reader is None:
            self._reader = self._message_source.open().__enter__()
        return self._reader


def _queues_of(wanted: TopicSelection, reader: SourceReader) -> list[MessageQueue]:
    """Those that exist, also if the topic has fewer queues than are assigned."""
    try:
        if not wanted.assigned:
            return wanted.queues_there(reader)
        return [queue for each in wanted.assigned for queue in each.of(reader.queues(each.topic))]
    except TopicNotFound:
        return []


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Lag in messages. `least`, `most` and `mean` are per queue."""

    by_queue: Mapping[MessageQueue, int]

    @classmethod
    def between(cls, read: Mapping[MessageQueue, int], newest: Mapping[MessageQueue, int]) -> Self:
        """Of queues that the stream does not know yet, all messages count."""
        return cls({queue: max(0, end - read.get(queue, 0)) for queue, end in newest.items()})

    @property
    def messages(self) -> int:
        return sum(self.by_queue.values())

    @property
    def least(self) -> int:
        return min(self.by_queue.values(), default=0)

    @property
    def most(self) -> int:
        return max(self.by_queue.values(), default=0)

    @property
    def mean(self) -> float:
        return self.messages / len(self.by_queue) if self.by_queue else 0.0

    def __str__(self) -> str:
        return f"{self.messages} messages behind in {len(self.by_queue)} queues, at most {self.most} in one"
