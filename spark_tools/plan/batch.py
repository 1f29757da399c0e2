"""What one `load()` reads: queues, bounds pinned once, offsets, parts. Only `parts` opens the origin, asks and closes.

Picklable. `parts` is called once, where the query is planned.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from firearrow.client.message import MessageQueue
from firearrow.spark_tools.errors import OptionWrong
from firearrow.spark_tools.origin import Origin, QueueRange, Reader
from firearrow.spark_tools.plan.loss import Losses
from firearrow.spark_tools.plan.narrowing import Narrowing
from firearrow.spark_tools.plan.offsets import Offsets
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from firearrow.spark_tools.plan.ranges import Part
from firearrow.spark_tools.plan.resolution import Resolution
from firearrow.spark_tools.plan.topics import when_there


@dataclass(frozen=True, slots=True)
class BatchPlan:
    origin: Origin
    options: SourceOptions
    narrowing: Narrowing = field(default_factory=Narrowing)
    pause: Callable[[float], None] = time.sleep

    def parts(self) -> list[Part]:
        """TopicMissing, OptionWrong, DataLoss."""
        with self.origin.open() as reader:
            return self.options.cut().parts(self.ranges(reader))

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
        return [sized(part, reader) for part in narrowed if len(part)]


def sized(part: QueueRange, reader: Reader) -> QueueRange:
    return QueueRange(part.queue, part.start, part.end, reader.bytes_of(part))


def _forwards(queue: MessageQueue, starts: Offsets, ends: Offsets) -> QueueRange:
    if ends[queue] < starts[queue]:
        raise OptionWrong(
            f"endingOffsets: queue {queue.queue_id} of {queue.topic} at {queue.broker_name} "
            f"would end at {ends[queue]}, before it starts at {starts[queue]}"
        )
    return QueueRange(queue, starts[queue], ends[queue])
