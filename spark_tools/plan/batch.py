"""What one `load()` reads: queues, bounds pinned once, offsets, parts. Only `parts` opens the origin, asks and closes.

Picklable. `parts` is called once, where the query is planned.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from firearrow.client.message import MessageQueue
from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.errors import OptionWrong
from firearrow.spark_tools.origin import Origin, QueueRange, Reader
from firearrow.spark_tools.plan.loss import Losses
from firearrow.spark_tools.plan.narrowing import Narrowing
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from firearrow.spark_tools.plan.ranges import Cut, Part, weight
from firearrow.spark_tools.plan.resolution import Resolution
from firearrow.spark_tools.plan.topics import when_there

HEAVY = 2
"""Times what a group should have: topics may be busy in one piece of the log only."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    origin: Origin
    options: SourceOptions
    narrowing: Narrowing = field(default_factory=Narrowing)
    pause: Callable[[float], None] = time.sleep

    def parts(self) -> list[Part]:
        """TopicMissing, OptionWrong, DataLoss."""
        with self.origin.open() as reader:
            return parts_of(self.ranges(reader), reader, self.options.cut())

    def ranges(self, reader: Reader) -> list[QueueRange]:
        """Sized, sorted by queue, none empty."""
        options, losses = self.options, Losses(self.options.fail_on_loss)
        wanted = options.wanted()
        there = when_there(lambda: wanted.queues(reader), options.wait_s, time.monotonic, self.pause)
        queues = self.narrowing.queues(there)
        bounds = reader.bounds(queues) if queues else {}
        resolution = Resolution(reader, losses, options.strategy)
        starts = resolution.starts(options.start_point(BATCH), bounds)
        ends = resolution.ends(options.end_point(), bounds)
        losses.check()
        asked = [_forwards(queue, starts, ends) for queue in sorted(bounds)]
        narrowed = [self.narrowing.range(part, reader) for part in asked]
        found = [part for part in narrowed if len(part)]
        choice = self.narrowing.choice(options.choice())
        if options.by_index and choice is not None:
            found = keyed(found, reader, choice)
        return [sized(part, reader) for part in found]


@runtime_checkable
class Indexed(Protocol):
    """A Reader whose messages are indexed by their keys."""

    def by_index(self, parts: Sequence[QueueRange], choice: Choice) -> list[QueueRange]:
        """What of `parts` may hold the choice's keys or unique ids, sorted; sizes are not known."""


def keyed(ranges: list[QueueRange], reader: Reader, choice: Choice) -> list[QueueRange]:
    """Less of them, as far as the origin's index tells where the choice's keys are."""
    return reader.by_index(ranges, choice) if isinstance(reader, Indexed) else ranges


@runtime_checkable
class ReadsAbreast(Protocol):
    """A Reader whose queues lie mixed in one log."""

    def abreast(self, parts: Sequence[QueueRange], *, bytes_each: int) -> list[Part]:
        """Everything of `parts` once, each group in one piece of the log."""


def parts_of(ranges: list[QueueRange], reader: Reader, cut: Cut) -> list[Part]:
    """By pieces of the log where there are such, so that each is read by one task; else, or if that does not give what
    was asked for, by queues."""
    if not isinstance(reader, ReadsAbreast) or len(ranges) < 2 or cut.records_max:
        return cut.parts(ranges)
    room = cut.room(ranges)
    groups = reader.abreast(ranges, bytes_each=room)
    found: list[Part] = []
    for group in groups:
        heavy = sum(map(weight, group)) > HEAVY * room
        found += replace(cut, parts_min=0).parts(group) if heavy else [group]
    return found if len(found) >= cut.parts_min else cut.parts(ranges)


def sized(part: QueueRange, reader: Reader) -> QueueRange:
    return QueueRange(part.queue, part.start, part.end, reader.bytes_of(part))


def _forwards(queue: MessageQueue, starts: Offsets, ends: Offsets) -> QueueRange:
    if ends[queue] < starts[queue]:
        raise OptionWrong(
            f"endingOffsets: queue {queue.queue_id} of {queue.topic} at {queue.broker_name} "
            f"would end at {ends[queue]}, before it starts at {starts[queue]}"
        )
    return QueueRange(queue, starts[queue], ends[queue])
