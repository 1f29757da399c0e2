"""Plans a job: ranges of queues, with their bounds fixed, split into slices. Calls a SourceReader; one
thread."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from firearrow.spark_tools.base.source import (
    IdentifyingReader,
    OnDataLoss,
    QueueRange,
    RecordId,
    Source,
    SourceReader,
)
from firearrow.spark_tools.jobs.arguments import EARLIEST, LATEST, SourceArguments
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, Plan
from firearrow.spark_tools.jobs.losses import LOST_WHOLE, PlanLosses, SliceLosses
from firearrow.spark_tools.plan.batch import keyed, report_missing_entries, sized
from firearrow.spark_tools.plan.data_loss import DataLosses
from firearrow.spark_tools.plan.queue_records import (
    RECREATED,
    QueueRecordCheck,
    QueueRecords,
    StreamOffsets,
)
from firearrow.spark_tools.plan.splits import split_range
from firearrow.spark_tools.plan.start_end import available_part, report_tail_losses, within
from firearrow.spark_tools.plan.topics import TopicSelection

SLICE_BYTES = 128 << 20
SLICE_MESSAGES = 1 << 20
"""If a worker is killed before it wrote progress, a whole slice is sent again; counts are in memory."""

Bounds = Mapping[MessageQueue, tuple[int, int]]


def planned(message_source: Source, source: SourceArguments) -> Plan:
    """Slices of the requested messages that exist, and the losses. Errors as of `ranges`; DataLoss names all
    losses."""
    losses = PlanLosses(source.fail_on_data_loss)
    with message_source.open() as reader:
        parts = ranges(reader, source, losses)
        losses.check()
        records = last_records(reader, parts)
    return Plan(slices(parts), losses.named, losses.by_topic, records)


def last_records(reader: SourceReader, parts: Sequence[QueueRange]) -> dict[MessageQueue, RecordId]:
    """The last record of each queue's ranges, as far as the source can tell."""
    ends: dict[MessageQueue, int] = {}
    for part in parts:
        ends[part.queue] = max(part.end, ends.get(part.queue, 0))
    if not isinstance(reader, IdentifyingReader):
        return {}
    found = reader.record_ids([(queue, end - 1) for queue, end in ends.items()])
    return {queue: record for queue, record in zip(ends, found, strict=True) if record is not None}


def lose_changed(job_checkpoint: Checkpoint, message_source: Source, fail: bool) -> None:
    """Of a job that is resumed: finish the slices of queues that have other records now than when they were
    planned, and count the rest of them as lost. DataLoss."""
    left = [slice_ for slice_ in job_checkpoint.unfinished() if slice_.part.queue in job_checkpoint.records]
    if not left or not job_checkpoint.resumed:
        return
    planned = StreamOffsets(
        {queue: record.queue_offset + 1 for queue, record in job_checkpoint.records.items()},
        {queue: QueueRecords(last=record) for queue, record in job_checkpoint.records.items()},
    ).only(dict.fromkeys(slice_.part.queue for slice_ in left))
    changed: set[MessageQueue] = set()
    with message_source.open() as reader:
        for topic in sorted({queue.topic for queue in planned}):
            of_topic = planned.only([queue for queue in planned if queue.topic == topic])
            with suppress(TopicNotFound):  # raised again where the topic is read
                changed |= QueueRecordCheck(reader).changed(of_topic, reader.bounds(list(of_topic))).keys()
    losses = DataLosses(fail)
    for slice_ in left:
        if slice_.part.queue in changed:
            progress = job_checkpoint.progress_files.read(slice_)
            rest = QueueRange(slice_.part.queue, progress.next, slice_.part.end)
            losses(rest, f"not read before {RECREATED}")
            if not fail:
                SliceLosses(progress, fail).count(rest, f"not read before {RECREATED}")
                progress.next = slice_.part.end
                progress.detail[LOST_WHOLE] = True
                job_checkpoint.progress_files.write(progress)
    losses.check()


def ranges(reader: SourceReader, source: SourceArguments, lost: OnDataLoss) -> list[QueueRange]:
    """One non-empty range for each queue, or what the index leaves of it. `lost` is called for missing
    ranges. TopicNotFound, InvalidOption."""
    assigned = source.assigned()
    if assigned is not None:
        _check_no_other_selection(source)
        pairs = {MessageQueue(*queue): pair for queue, pair in assigned.items()}
        _check_queues_exist(reader, pairs)
    else:
        pairs = dict.fromkeys(queues(reader, source), (EARLIEST, LATEST))
    bounds = reader.bounds(sorted(pairs))
    report_tail_losses(reader, [queue for queue, (_, end) in sorted(pairs.items()) if end == LATEST], lost)
    since, until = source.stored()
    asked = [_of(queue, start, end, bounds, lost) for queue, (start, end) in sorted(pairs.items())]
    if not source.by_index:
        whole = assigned is None and source.queues is None
        report_missing_entries(reader, asked, lost, whole=whole)
    if since is not None or until is not None:
        asked = [within_times(reader, part, since, until) for part in asked if len(part)]
    found = [part for part in asked if len(part)]
    if source.by_index:
        found = keyed(found, reader, source.message_filter())
    return [sized(part, reader) for part in found]


def queues(reader: SourceReader, source: SourceArguments) -> list[MessageQueue]:
    """The queues of the requested topics that `--queues` names. TopicNotFound."""
    topics, pattern = source.topic_names(), source.topic_pattern()
    if topics and pattern is not None:
        raise InvalidOption("--topic and --pattern: set only one of them")
    chosen = source.queue_set()
    available = TopicSelection(tuple(sorted(topics)), pattern).queues(reader)
    found = [queue for queue in available if (queue.broker_name, queue.queue_id) in chosen]
    if not found:
        raise InvalidOption(
            f"--queues: {source.queues} names none of the {len(available)} queues of these topics"
        )
    return found


def within_times(reader: SourceReader, part: QueueRange, since: int | None, until: int | None) -> QueueRange:
    """The part of the range stored in [since, until), if the source can find it."""
    start = part.start if since is None else max(part.start, reader.offset_at(part.queue, since))
    end = part.end if until is None else min(part.end, reader.offset_at(part.queue, until))
    return QueueRange(part.queue, start, max(start, end))


def slices(
    parts: Sequence[QueueRange], *, size: int = SLICE_BYTES, count: int = SLICE_MESSAGES
) -> list[QueueRange]:
    """The ranges, none larger than about `size` bytes and `count` messages."""
    return [
        split
        for part in parts
        for split in split_range(
            part, min(len(part), max(1, ceil(part.size / size), ceil(len(part) / count)))
        )
    ]


def _of(queue: MessageQueue, start: int, end: int, bounds: Bounds, lost: OnDataLoss) -> QueueRange:
    first, last = bounds[queue]
    if start in (EARLIEST, LATEST):
        start = first if start == EARLIEST else last
    elif end == LATEST:
        start = within(queue, start, first, last, lost)
    return available_part(QueueRange(queue, start, last if end == LATEST else end), first, last, lost)


def _check_no_other_selection(source: SourceArguments) -> None:
    if source.topics or source.pattern is not None or source.queues is not None:
        raise InvalidOption("--offsets names the queues: use it without --topic, --pattern and --queues")


def _check_queues_exist(reader: SourceReader, pairs: Mapping[MessageQueue, tuple[int, int]]) -> None:
    for topic in sorted({queue.topic for queue in pairs}):
        strange = {queue for queue in pairs if queue.topic == topic} - set(reader.queues(topic))
        if strange:
            queue = min(strange)
            raise TopicNotFound(f"--offsets: {topic} has no queue {queue.queue_id} at {queue.broker_name}")
