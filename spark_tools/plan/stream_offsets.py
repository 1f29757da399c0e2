"""Offsets of a stream: where it starts, how far the next micro-batch goes, how large its lag is.

- StreamCursor lives as long as the stream, in one process. Its reader stays open; Spark never closes it. One
  thread.
- RateLimits limit a micro-batch to a number of messages or bytes, or delay it until there are enough. One for
  each stream, one thread; the clock is passed in.
- StreamLag counts the messages between a stream's offsets and the ends of its queues. Pure.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from firearrow.client.base.errors import NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, Source, SourceReader
from firearrow.spark_tools.plan.batch import keyed, sized, splits_of
from firearrow.spark_tools.plan.data_loss import DataLosses
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.splits import InputSplit
from firearrow.spark_tools.plan.start_end import Bounds, OffsetResolver, available_part
from firearrow.spark_tools.plan.topics import TopicSelection, when_there

CUTS_MAX = 8
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
        """`lost` is called once for each range that is only logged."""
        self._message_source = message_source
        self._options = options
        self._clock = clock
        self._pause = pause
        self._reader: SourceReader | None = None
        self._queues: list[MessageQueue] = []
        self._listed_at: float | None = None
        self._bounds: dict[MessageQueue, tuple[int, int]] = {}
        self._looked_at: float | None = None
        self._first: Offsets | None = None
        self._pinned: Offsets | None = None
        self._lost = lost
        self._losses = DataLosses(options.fail_on_loss, lost)
        self._shortened: set[MessageQueue] = set()
        """Queues that end before the stream's offset and were reported."""
        self._limits = RateLimits(
            options.trigger_messages,
            options.trigger_bytes,
            options.trigger_messages_min,
            options.trigger_delay_s,
            clock=clock,
        )

    def first(self) -> Offsets:
        """Where a new stream starts; computed once."""
        if self._first is None:
            options = self._options
            when_there(self._list, options.wait_s, self._clock, self._pause)
            resolution = OffsetResolver(self._open(), self._losses, options.strategy)
            starts = resolution.starts(options.start_point(STREAM), self._look())
            self._losses.check()
            self._first = starts
        return self._first

    def pin(self) -> None:
        """Fix the end of the stream at the current ends of its queues."""
        when_there(self._list, self._options.wait_s, self._clock, self._pause)
        self._pinned = self.newest()

    def newest(self) -> Offsets:
        """The end of every queue, regardless of limits."""
        return {queue: end for queue, (_, end) in self._look().items()}

    def end(self, starts: Mapping[MessageQueue, int], limited: bool) -> Offsets:
        """The end of a batch from `starts`, never before it. Queues not in `starts` begin at their first
        message. DataLoss: a queue no longer exists, or ends before its start."""
        bounds = self._look()
        begins, ends = dict(starts), dict(starts)
        for queue, (first, last) in bounds.items():
            end = last if self._pinned is None else min(last, self._pinned.get(queue, starts.get(queue, -1)))
            if queue in starts or end >= first:
                begins.setdefault(queue, first)
                ends[queue] = max(begins[queue], end)
        self._report_loss(starts, bounds)
        if not limited:
            return ends
        return self._limits.end(begins, ends, self._open().bytes_of, self._pinned is not None)

    def parts(self, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[InputSplit]:
        """Splits of the ranges from `starts` to `ends`. DataLoss names the missing ones."""
        bounds, losses = self._look(), DataLosses(self._options.fail_on_loss, self._lost)
        ranges = []
        for queue in sorted(ends):
            if queue not in bounds:
                losses(QueueRange(queue, starts.get(queue, 0), ends[queue]), "the queue no longer exists")
                continue
            first, end = bounds[queue]
            requested = QueueRange(queue, starts.get(queue, first), ends[queue])
            ranges.append(available_part(requested, first, end, losses))
        losses.check()
        reader = self._open()
        found = [part for part in ranges if len(part)]
        if self._options.by_index:
            found = keyed(found, reader, self._options.message_filter())
        return splits_of([sized(part, reader) for part in found], reader, self._options.split_policy())

    def _report_loss(self, starts: Mapping[MessageQueue, int], bounds: Bounds) -> None:
        for queue, start in starts.items():
            if queue not in bounds:
                self._losses(QueueRange(queue, start, start), "the queue no longer exists")
                continue
            end = bounds[queue][1]
            if end >= start:
                self._shortened.discard(queue)
            elif queue not in self._shortened:
                self._shortened.add(queue)
                self._losses(
                    QueueRange(queue, end, start), f"the queue now ends at {end}, before the stream's offset"
                )
        self._losses.check()

    def _look(self) -> dict[MessageQueue, tuple[int, int]]:
        """Bounds of the queues, at most REFRESH_S old."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= REFRESH_S:
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
        return self._queues

    def _open(self) -> SourceReader:
        if self._reader is None:
            self._reader = self._message_source.open().__enter__()
        return self._reader


def _queues_of(wanted: TopicSelection, reader: SourceReader) -> list[MessageQueue]:
    try:
        return wanted.queues_there(reader)
    except TopicNotFound:
        return []


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Lag in messages. `least`, `most` and `mean` are per queue."""

    behind: Mapping[MessageQueue, int]

    @classmethod
    def between(cls, read: Mapping[MessageQueue, int], newest: Mapping[MessageQueue, int]) -> Self:
        """Of queues that the stream does not know yet, all messages count."""
        return cls({queue: max(0, end - read.get(queue, 0)) for queue, end in newest.items()})

    @property
    def messages(self) -> int:
        return sum(self.behind.values())

    @property
    def least(self) -> int:
        return min(self.behind.values(), default=0)

    @property
    def most(self) -> int:
        return max(self.behind.values(), default=0)

    @property
    def mean(self) -> float:
        return self.messages / len(self.behind) if self.behind else 0.0

    def __str__(self) -> str:
        return f"{self.messages} messages behind in {len(self.behind)} queues, at most {self.most} in one"
