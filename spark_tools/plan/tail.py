"""The moving end of a stream's queues: where it begins, how far it may go now, and what lies between two offsets.

Lives as long as the stream in one process, with its reader open, and is never told to close. One thread.
"""

import time
from collections.abc import Callable, Mapping

from firearrow.client.base.errors import NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, Source, SourceReader
from firearrow.spark_tools.plan.batch import keyed, sized, splits_of
from firearrow.spark_tools.plan.limits import RateLimits
from firearrow.spark_tools.plan.loss import DataLosses
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.ranges import InputSplit
from firearrow.spark_tools.plan.resolution import Bounds, OffsetResolver, available_part
from firearrow.spark_tools.plan.topics import TopicSelection, when_there

REFRESH_S = 0.2
"""Spark polls a hundred times a second."""
RELIST_S = 5.0
"""How soon queues and topics that are new are found."""


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
        """`lost` is told of what is only warned of, each range once."""
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
        self._behind: set[MessageQueue] = set()
        """Queues that end before the stream's offset, and are told."""
        self._limits = RateLimits(
            options.trigger_messages,
            options.trigger_bytes,
            options.trigger_messages_min,
            options.trigger_delay_s,
            clock=clock,
        )

    def first(self) -> Offsets:
        """Where a new stream begins; always the same."""
        if self._first is None:
            options = self._options
            when_there(self._list, options.wait_s, self._clock, self._pause)
            resolution = OffsetResolver(self._open(), self._losses, options.strategy)
            starts = resolution.starts(options.start_point(STREAM), self._look())
            self._losses.check()
            self._first = starts
        return self._first

    def pin(self) -> None:
        """From now on the end is what it is now."""
        when_there(self._list, self._options.wait_s, self._clock, self._pause)
        self._pinned = self.newest()

    def newest(self) -> Offsets:
        """The end of every queue, whatever limits say."""
        return {queue: end for queue, (_, end) in self._look().items()}

    def end(self, starts: Mapping[MessageQueue, int], limited: bool) -> Offsets:
        """How far a batch from `starts` goes: never back. Queues that are not in `starts` begin at their first message.
        DataLoss: a queue that is gone, or ends before its start."""
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
        """What lies between. DataLoss names what of it is not there any more."""
        bounds, losses = self._look(), DataLosses(self._options.fail_on_loss, self._lost)
        ranges = []
        for queue in sorted(ends):
            if queue not in bounds:
                losses(
                    QueueRange(queue, starts.get(queue, 0), ends[queue]), "the queue is not there any more"
                )
                continue
            first, end = bounds[queue]
            asked = QueueRange(queue, starts.get(queue, first), ends[queue])
            ranges.append(available_part(asked, first, end, losses))
        losses.check()
        reader = self._open()
        found = [part for part in ranges if len(part)]
        if self._options.by_index:
            found = keyed(found, reader, self._options.message_filter())
        return splits_of([sized(part, reader) for part in found], reader, self._options.split_policy())

    def _report_loss(self, starts: Mapping[MessageQueue, int], bounds: Bounds) -> None:
        for queue, start in starts.items():
            if queue not in bounds:
                self._losses(QueueRange(queue, start, start), "the queue is not there any more")
                continue
            end = bounds[queue][1]
            if end >= start:
                self._behind.discard(queue)
            elif queue not in self._behind:
                self._behind.add(queue)
                self._losses(
                    QueueRange(queue, end, start), f"the queue ends at {end} now, before the stream's offset"
                )
        self._losses.check()

    def _look(self) -> dict[MessageQueue, tuple[int, int]]:
        """Bounds of the queues, not older than REFRESH_S."""
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
        """The queues that there are. TopicNotFound only the first time: what vanishes later is lost."""
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
