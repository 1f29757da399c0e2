"""What a job's arguments mean at its source: ranges of queues, pinned, cut into slices. Asks a Reader; one thread."""

from collections.abc import Mapping, Sequence
from math import ceil

from firearrow.client.message import MessageQueue
from firearrow.spark_tools.errors import OptionWrong, TopicMissing
from firearrow.spark_tools.jobs.arguments import SourceArguments
from firearrow.spark_tools.jobs.losses import PlanLosses
from firearrow.spark_tools.jobs.marks import Plan
from firearrow.spark_tools.jobs.spellings import EARLIEST, LATEST
from firearrow.spark_tools.origin import Lost, Origin, QueueRange, Reader
from firearrow.spark_tools.plan.batch import keyed, sized
from firearrow.spark_tools.plan.ranges import divided
from firearrow.spark_tools.plan.resolution import tell_behind, there, within
from firearrow.spark_tools.plan.topics import Wanted

SLICE_BYTES = 128 << 20
SLICE_MESSAGES = 1 << 20
"""A slice is what is sent again when a worker was killed before its first mark; and it counts in memory."""

Bounds = Mapping[MessageQueue, tuple[int, int]]


def planned(origin: Origin, source: SourceArguments) -> Plan:
    """Slices of what is asked for and is there, and what of it is gone. As `ranges`; DataLoss names all of it."""
    losses = PlanLosses(source.fail_on_data_loss)
    with origin.open() as reader:
        parts = ranges(reader, source, losses)
    losses.check()
    return Plan(slices(parts), losses.named, losses.by_topic)


def ranges(reader: Reader, source: SourceArguments, lost: Lost) -> list[QueueRange]:
    """One range a queue, or what the index leaves of it, none empty, as the source is now. TopicMissing, OptionWrong;
    `lost` is told what is gone."""
    asked = source.assigned()
    if asked is not None:
        _no_other_choice(source)
        pairs = {MessageQueue(*place): pair for place, pair in asked.items()}
        _there(reader, pairs)
    else:
        pairs = dict.fromkeys(queues(reader, source), (EARLIEST, LATEST))
    bounds = reader.bounds(sorted(pairs))
    tell_behind(reader, [queue for queue, (_, end) in sorted(pairs.items()) if end == LATEST], lost)
    since, until = source.stored()
    found = []
    for queue, (start, end) in sorted(pairs.items()):
        part = _of(queue, start, end, bounds, lost)
        if len(part) and (since is not None or until is not None):
            part = within_times(reader, part, since, until)
        if len(part):
            found.append(part)
    if source.by_index:
        found = keyed(found, reader, source.choice())
    return [sized(part, reader) for part in found]


def queues(reader: Reader, source: SourceArguments) -> list[MessageQueue]:
    """Those of the wanted topics that `--queues` names. TopicMissing."""
    topics, pattern = source.topic_names(), source.topic_pattern()
    if topics and pattern is not None:
        raise OptionWrong("--topics and --pattern: one of them says which topics")
    chosen = source.queue_set()
    there = Wanted(tuple(sorted(topics)), pattern).queues(reader)
    found = [queue for queue in there if (queue.broker_name, queue.queue_id) in chosen]
    if not found:
        raise OptionWrong(f"--queues: {source.queues} names none of the {len(there)} queues of these topics")
    return found


def within_times(reader: Reader, part: QueueRange, since: int | None, until: int | None) -> QueueRange:
    """What was stored in [since, until), as far as the source can find it."""
    start = part.start if since is None else max(part.start, reader.offset_at(part.queue, since))
    end = part.end if until is None else min(part.end, reader.offset_at(part.queue, until))
    return QueueRange(part.queue, start, max(start, end))


def slices(
    parts: Sequence[QueueRange], *, size: int = SLICE_BYTES, count: int = SLICE_MESSAGES
) -> list[QueueRange]:
    """The ranges, none larger than about `size` bytes and `count` messages."""
    return [
        piece
        for part in parts
        for piece in divided(part, min(len(part), max(1, ceil(part.size / size), ceil(len(part) / count))))
    ]


def _of(queue: MessageQueue, start: int, end: int, bounds: Bounds, lost: Lost) -> QueueRange:
    first, last = bounds[queue]
    if start in (EARLIEST, LATEST):
        start = first if start == EARLIEST else last
    elif end == LATEST:
        start = within(queue, start, first, last, lost)
    return there(QueueRange(queue, start, last if end == LATEST else end), first, last, lost)


def _no_other_choice(source: SourceArguments) -> None:
    if source.topics or source.pattern is not None or source.queues is not None:
        raise OptionWrong("--offsets names the queues: give it without --topics, --pattern and --queues")


def _there(reader: Reader, pairs: Mapping[MessageQueue, tuple[int, int]]) -> None:
    for topic in sorted({queue.topic for queue in pairs}):
        strange = {queue for queue in pairs if queue.topic == topic} - set(reader.queues(topic))
        if strange:
            queue = min(strange)
            raise TopicMissing(f"--offsets: {topic} has no queue {queue.queue_id} at {queue.broker_name}")
