"""Plan of one `load()`: queues, bounds, offsets, splits.

Picklable. `parts` is called once, where the query is planned; it opens the source, reads the bounds once and
closes it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, Source, SourceReader
from firearrow.spark_tools.plan.data_loss import DataLosses
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from firearrow.spark_tools.plan.splits import InputSplit, SplitPolicy, weight
from firearrow.spark_tools.plan.start_end import OffsetResolver
from firearrow.spark_tools.plan.topics import when_there

HEAVY = 2
"""A log-order split this many times larger than planned is split again: a topic may fill one region of the
log."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    message_source: Source
    options: SourceOptions
    pause: Callable[[float], None] = time.sleep

    def parts(self) -> list[InputSplit]:
        """The splits, one for each task. TopicNotFound, InvalidOption, DataLoss."""
        with self.message_source.open() as reader:
            return splits_of(self.ranges(reader), reader, self.options.split_policy())

    def ranges(self, reader: SourceReader) -> list[QueueRange]:
        """Ranges with their sizes, sorted by queue, none empty."""
        options, losses = self.options, DataLosses(self.options.fail_on_loss)
        wanted = options.wanted()
        there = when_there(lambda: wanted.queues(reader), options.wait_s, time.monotonic, self.pause)
        queues = options.pushdown.queues(there)
        bounds = reader.bounds(queues) if queues else {}
        resolution = OffsetResolver(reader, losses, options.strategy)
        starts = resolution.starts(options.start_point(BATCH), bounds)
        ends = resolution.ends(options.end_point(), bounds)
        losses.check()
        asked = [_forwards(queue, starts, ends) for queue in sorted(bounds)]
        if not options.by_index:
            report_missing_entries(reader, asked, losses, whole=not options.assign)
        losses.check()
        narrowed = [options.pushdown.range(part, reader) for part in asked]
        found = [part for part in narrowed if len(part)]
        message_filter = options.pushdown.message_filter(options.message_filter())
        if options.by_index and message_filter is not None:
            found = keyed(found, reader, message_filter)
        return [sized(part, reader) for part in found]


@runtime_checkable
class EntryCheckingReader(Protocol):
    """A SourceReader whose queues are indexes of a log."""

    def missing_entries(self, parts: Sequence[QueueRange]) -> list[tuple[QueueRange, str]]:
        """Messages that only the log has, and why: before `parts` that begin with their queue's first entry,
        after those that end with its last one, and in other queues of their topics that have no entries."""


def report_missing_entries(
    reader: SourceReader, parts: Sequence[QueueRange], on_data_loss: OnDataLoss, *, whole: bool
) -> None:
    """Report messages that a reader of queues would pass over. `whole`: `parts` are all queues of their
    topics."""
    asked = {part.queue for part in parts}
    for part, why in reader.missing_entries(parts) if isinstance(reader, EntryCheckingReader) else ():
        if whole or part.queue in asked:
            on_data_loss(part, why)


@runtime_checkable
class IndexedReader(Protocol):
    """A SourceReader whose messages are indexed by their keys."""

    def by_index(self, parts: Sequence[QueueRange], message_filter: MessageFilter) -> list[QueueRange]:
        """The ranges of `parts` that may contain the filter's keys or unique ids, sorted, without sizes."""


def keyed(ranges: list[QueueRange], reader: SourceReader, message_filter: MessageFilter) -> list[QueueRange]:
    """The ranges, reduced by the source's index of keys if it has one."""
    return reader.by_index(ranges, message_filter) if isinstance(reader, IndexedReader) else ranges


@runtime_checkable
class LogOrderReader(Protocol):
    """A SourceReader whose queues share one log."""

    def log_order_splits(self, parts: Sequence[QueueRange], *, bytes_each: int) -> list[InputSplit]:
        """Cover `parts` exactly once, with one region of the log for each split."""


def splits_of(ranges: list[QueueRange], reader: SourceReader, split_policy: SplitPolicy) -> list[InputSplit]:
    """Split by regions of the log if the source has one, so that one task reads each region. Otherwise, or if
    that gives too few splits, split by queues."""
    if not isinstance(reader, LogOrderReader) or len(ranges) < 2 or split_policy.records_max:
        return split_policy.parts(ranges)
    size = split_policy.bytes_per_split(ranges)
    groups = reader.log_order_splits(ranges, bytes_each=size)
    found: list[InputSplit] = []
    for group in groups:
        heavy = sum(map(weight, group)) > HEAVY * size
        found += replace(split_policy, parts_min=0).parts(group) if heavy else [group]
    return found if len(found) >= split_policy.parts_min else split_policy.parts(ranges)


def sized(part: QueueRange, reader: SourceReader) -> QueueRange:
    return QueueRange(part.queue, part.start, part.end, reader.bytes_of(part))


def _forwards(queue: MessageQueue, starts: Offsets, ends: Offsets) -> QueueRange:
    if ends[queue] < starts[queue]:
        raise InvalidOption(
            f"endingOffsets: queue {queue.queue_id} of {queue.topic} at {queue.broker_name} "
            f"would end at {ends[queue]}, before its start {starts[queue]}"
        )
    return QueueRange(queue, starts[queue], ends[queue])
