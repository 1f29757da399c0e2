"""Resolves start and end points to offsets, and reports requested offsets that are missing.

Uses the bounds that the caller read; the SourceReader is called only for times and tail losses. One thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, SourceReader
from firearrow.spark_tools.plan.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    OffsetEdge,
    Offsets,
    PerQueue,
    Point,
)

Bounds = Mapping[MessageQueue, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class OffsetResolver:
    reader: SourceReader
    on_data_loss: OnDataLoss
    strategy: str = "error"
    """For a starting time after which a queue has no message: `error`, or `latest`."""

    def starts(self, point: Point, bounds: Bounds) -> Offsets:
        """Starts within bounds. Reports as lost: offsets below the first, which have expired, and offsets
        beyond the end."""
        _check_named("startingOffsets", point, bounds)
        return {queue: self._start(point, queue, *bounds[queue]) for queue in bounds}

    def ends(self, point: Point, bounds: Bounds) -> Offsets:
        """Ends within bounds. Reports as lost: requested offsets beyond the end, and unreadable records after
        it."""
        _check_named("endingOffsets", point, bounds)
        found = {queue: self._end(point, queue, *bounds[queue]) for queue in bounds}
        numbered = point.offsets if isinstance(point, PerQueue) else {}
        whole = [queue for queue, end in found.items() if end == bounds[queue][1]]
        report_tail_losses(
            self.reader,
            [queue for queue in whole if numbered.get(queue, LATEST) == LATEST],
            self.on_data_loss,
        )
        return found

    def _start(self, point: Point, queue: MessageQueue, first: int, end: int) -> int:
        match point:
            case PerQueue(offsets):
                return self._kept(queue, offsets.get(queue, EARLIEST), first, end)
            case AtTime(ms):
                return self._start_at(queue, ms, first, end)
            case AtTimes(times):
                return self._start_at(queue, times[queue], first, end) if queue in times else first
        return first if point is OffsetEdge.EARLIEST else end

    def _end(self, point: Point, queue: MessageQueue, first: int, end: int) -> int:
        match point:
            case PerQueue(offsets):
                requested = offsets.get(queue, LATEST)
                if requested > end:
                    self.on_data_loss(
                        QueueRange(queue, end, requested), f"beyond the end of the queue, which is {end}"
                    )
                return end if requested == LATEST else max(first, min(requested, end))
            case AtTime(ms):
                return self._at(queue, ms, first, end)
            case AtTimes(times):
                return self._at(queue, times[queue], first, end) if queue in times else end
        return end

    def _start_at(self, queue: MessageQueue, ms: int, first: int, end: int) -> int:
        found = self._at(queue, ms, first, end)
        if found == end and first < end and self.strategy == "error":
            raise InvalidOption(
                f"startingTimestamp: {QueueRange(queue, first, end)} has no message stored at {ms} ms or "
                "later; startingOffsetsByTimestampStrategy=latest reads such a queue from its end"
            )
        return found

    def _at(self, queue: MessageQueue, ms: int, first: int, end: int) -> int:
        return first if first == end else max(first, min(self.reader.offset_at(queue, ms), end))

    def _kept(self, queue: MessageQueue, requested: int, first: int, end: int) -> int:
        if requested == LATEST:
            return end
        if requested == EARLIEST:
            return first
        return within(queue, requested, first, end, self.on_data_loss)


def report_tail_losses(
    reader: SourceReader, queues: Sequence[MessageQueue], on_data_loss: OnDataLoss
) -> None:
    """Report unreadable records after the ends of `queues`, which are read to their ends."""
    for part, why in reader.tail_losses(queues) if queues else ():
        on_data_loss(part, why)


def within(queue: MessageQueue, requested: int, first: int, end: int, on_data_loss: OnDataLoss) -> int:
    """The start `requested`, moved into bounds; what is missing is reported."""
    if requested < first:
        on_data_loss(QueueRange(queue, requested, first), f"expired: the queue begins at {first}")
    elif requested > end:
        on_data_loss(QueueRange(queue, end, requested), f"beyond the end of the queue, which is {end}")
    return max(first, min(requested, end))


def available_part(requested: QueueRange, first: int, end: int, on_data_loss: OnDataLoss) -> QueueRange:
    """The part of a range that exists; the rest is reported."""
    queue, below, above = requested.queue, min(first, requested.end), max(end, requested.start)
    if requested.start < below:
        on_data_loss(QueueRange(queue, requested.start, below), f"expired: the queue begins at {first}")
    if above < requested.end:
        on_data_loss(QueueRange(queue, above, requested.end), f"beyond the end of the queue, which is {end}")
    start = max(first, min(requested.start, end))
    return QueueRange(queue, start, max(start, min(requested.end, end)))


def _check_named(option: str, point: Point, bounds: Bounds) -> None:
    named = point.offsets if isinstance(point, PerQueue) else point.ms if isinstance(point, AtTimes) else {}
    strange = [queue for queue in named if queue not in bounds]
    if strange:
        queue = min(strange)
        raise InvalidOption(
            f"{option}: queue {queue.queue_id} of {queue.topic} at {queue.broker_name} is not one of the "
            "queues to read; remove it or correct its name"
        )
