"""Offsets of a stream with the records that they belong to, and where to go on if a queue has others.

A topic that was deleted and recreated has other records at the same offsets, and so has a store that was
restored from a backup and written to again. A stream's offsets therefore name two records for each queue:
the first one that it read, and the one before its offset. QueueRecordCheck compares them with the queue. One
thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.source import (
    IdentifyingReader,
    OnDataLoss,
    QueueRange,
    RecordId,
    SourceReader,
)
from firearrow.spark_tools.plan.offsets import RECORDS, offset_tree, offsets_json, offsets_of
from firearrow.spark_tools.plan.option_parsing import number

RECREATED = "the topic was deleted and recreated, or its store was restored from a backup"
UNKNOWN = -1
"""Physical offset and store time of a record that cannot be read."""
LONG_MIN = -(1 << 63)
Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QueueRecords:
    """`first`: at the offset where reading began, once there is one; `last`: before the current offset. Both
    None: the queue was empty, its messages had expired. `gone`: the queue does not have the offset any more,
    or its topic does not exist, which was reported."""

    first: RecordId | None = None
    last: RecordId | None = None
    gone: bool = False

    @property
    def known(self) -> RecordId | None:
        """The latest one that can be compared."""
        first = self.first if self.first is not None and self.first.physical_offset != UNKNOWN else None
        return self.last or first


class StreamOffsets(dict[MessageQueue, int]):
    """Offsets by queue. `records` has no entry for a queue of which nothing is known, as in checkpoints of
    earlier versions."""

    def __init__(
        self, offsets: Mapping[MessageQueue, int], records: Mapping[MessageQueue, QueueRecords] | None = None
    ) -> None:
        super().__init__(offsets)
        self.records = dict(records or {})

    @classmethod
    def of(cls, offsets: Mapping[MessageQueue, int]) -> Self:
        return offsets if isinstance(offsets, cls) else cls(offsets)

    @classmethod
    def of_json(cls, tree: object) -> Self:
        """The inverse of `json`. ValueError states what is wrong."""
        offsets = offsets_of(tree)
        named = tree.get(RECORDS, {}) if isinstance(tree, dict) else {}
        return cls(offsets, offset_tree(named, _queue_records))

    def json(self) -> dict[str, Any]:
        """The JSON form of the offsets. RECORDS has [queue offset, physical offset, store time] of the two
        records, sorted, so that equal offsets give equal strings."""
        tree: dict[str, Any] = dict(offsets_json(self))
        for queue in sorted(self.records):
            of_topic = tree.setdefault(RECORDS, {}).setdefault(queue.topic, {})
            of_topic.setdefault(queue.broker_name, {})[str(queue.queue_id)] = _json(self.records[queue])
        return tree

    def only(self, queues: Iterable[MessageQueue]) -> Self:
        """Those of these queues."""
        found = [queue for queue in queues if queue in self]
        records = {queue: self.records[queue] for queue in found if queue in self.records}
        return type(self)({queue: self[queue] for queue in found}, records)

    def begin(self, queue: MessageQueue, ends: "StreamOffsets", otherwise: int) -> int:
        """Where the part of a queue up to `ends` begins. `otherwise`: the queue is new."""
        begun, ended = self.records.get(queue), ends.records.get(queue)
        first = None if ended is None else ended.first
        if queue not in self:
            return otherwise if first is None else first.queue_offset
        if first is None or (begun is not None and begun.first == first):
            return min(self[queue], ends[queue])
        return first.queue_offset


class QueueRecordCheck:
    """Compares records with those of a source; knows nothing of a source that cannot identify them."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._records = reader if isinstance(reader, IdentifyingReader) else None

    @property
    def can_compare(self) -> bool:
        return self._records is not None

    def changed(
        self, offsets: StreamOffsets, bounds: Mapping[MessageQueue, Bounds]
    ) -> dict[MessageQueue, int]:
        """The queues that have other records than `offsets` names, with the offset of the first unread one.

        A queue that only ends earlier than before is not among them: what is still to come shows whether it
        has changed. Nor is one whose records have expired.
        """
        if self._records is None:
            return {}
        compared = {
            queue: _compared(known, offsets[queue], *bounds[queue])
            for queue, known in offsets.records.items()
            if queue in bounds and queue in offsets
        }
        places = [(queue, at) for queue, at in compared.items() if at is not None]
        different = [
            queue
            for (queue, _), found in zip(places, self._records.record_ids(places), strict=True)
            if found is not None and self._differs(queue, found, offsets.records[queue], bounds[queue])
        ]
        return {
            queue: self._first_unread(queue, offsets[queue], offsets.records[queue], bounds[queue])
            for queue in different
        }

    def named(
        self,
        begins: StreamOffsets,
        ends: Mapping[MessageQueue, int],
        bounds: Mapping[MessageQueue, Bounds],
    ) -> StreamOffsets:
        """`ends` with the records that identify its queues. `begins` has those that do not change: the first
        record, and both of queues that are not read."""
        if self._records is None:
            return StreamOffsets(ends)
        wanted = [
            place for queue in bounds if queue in ends for place in _wanted(queue, begins, ends, bounds)
        ]
        found = dict(zip(wanted, self._records.record_ids(wanted), strict=True)) if wanted else {}
        records = {
            queue: _named(queue, begins, ends[queue], bounds[queue][0], found)
            if queue in bounds
            else begins.records.get(queue)
            for queue in ends
        }
        return StreamOffsets(ends, {queue: each for queue, each in records.items() if each is not None})

    def _differs(self, queue: MessageQueue, found: RecordId, named: QueueRecords, bounds: Bounds) -> bool:
        known = named.known
        if known is None:
            return True
        if found.queue_offset == known.queue_offset:
            return found != known
        return found.is_later_than(known) or self._begins_differently(queue, named, bounds)

    def _begins_differently(self, queue: MessageQueue, named: QueueRecords, bounds: Bounds) -> bool:
        """Whether the first record read is another one now."""
        first = named.first
        if first is None or first.physical_offset == UNKNOWN or not _within(first.queue_offset, bounds):
            return False
        found = self._at(queue, first.queue_offset)
        return found is not None and found != first

    def _first_unread(self, queue: MessageQueue, offset: int, named: QueueRecords, bounds: Bounds) -> int:
        """The first record of all, unless the queue begins with records that were read."""
        (first, end), known = bounds, named.known
        head = self._at(queue, first)
        if known is None or head is None or head.is_later_than(known):
            return first
        if self._begins_differently(queue, named, bounds):
            return first
        later = self._reader.offset_at(queue, known.store_ms + 1)
        if first < later < min(offset, end):
            read, unread = self._at(queue, later - 1), self._at(queue, later)
            if read is not None and unread is not None and unread.is_later_than(known):
                return first if read.is_later_than(known) else later
        return first  # store times do not show which ones were read: some are read twice

    def _at(self, queue: MessageQueue, queue_offset: int) -> RecordId | None:
        assert self._records is not None
        return self._records.record_ids([(queue, queue_offset)])[0]


def report_changed(
    reader: SourceReader, parts: Sequence[QueueRange], planned: StreamOffsets, on_data_loss: OnDataLoss
) -> None:
    """After `parts` were read: report those of queues that have other records now than when `planned` was made,
    since nothing states which of them were read. A topic that no longer exists was read before."""
    wanted = planned.only(dict.fromkeys(part.queue for part in parts if part.queue in planned.records))
    try:
        bounds = reader.bounds(list(wanted)) if wanted else {}
    except TopicNotFound:
        return
    changed = QueueRecordCheck(reader).changed(wanted, bounds) if wanted else {}
    for part in parts:
        if part.queue in changed:
            on_data_loss(part, f"{RECREATED} while they were read")


def _compared(named: QueueRecords, offset: int, first: int, end: int) -> int | None:
    """The offset whose record shows whether the queue has changed; None: there is none."""
    known = named.known
    if first == end:
        return None
    if known is None:
        return first if named == QueueRecords() and first < offset else None
    if known.queue_offset < first:
        return None
    return min(known.queue_offset, end - 1)


def _wanted(
    queue: MessageQueue,
    begins: StreamOffsets,
    ends: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, Bounds],
) -> list[tuple[MessageQueue, int]]:
    """The offsets of the records that `ends` needs besides those of `begins`."""
    before = begins.records.get(queue)
    if before is not None and begins.get(queue) == ends[queue]:
        return []
    places = [] if before is not None and before.first is not None else [begins.get(queue, ends[queue])]
    return [(queue, at) for at in (*places, ends[queue] - 1) if _within(at, bounds[queue])]


def _named(
    queue: MessageQueue,
    begins: StreamOffsets,
    end: int,
    available: int,
    found: Mapping[tuple[MessageQueue, int], RecordId | None],
) -> QueueRecords | None:
    """`available`: the queue's first offset. None: no record is known, or the queue has had none yet."""
    before = begins.records.get(queue)
    begin = begins.get(queue, end)
    if before is not None and begin == end:
        return before
    first = before.first if before is not None else None
    if first is None and (begin < end or (queue, begin) in found):
        first = found.get((queue, begin)) or RecordId(begin, UNKNOWN, UNKNOWN)
    last = found.get((queue, end - 1))
    nothing_known = first is None and last is None and not 0 < end <= available
    return None if nothing_known else QueueRecords(first, last)


def _within(queue_offset: int, bounds: Bounds) -> bool:
    return bounds[0] <= queue_offset < bounds[1]


def _json(records: QueueRecords) -> dict[str, Any]:
    found: dict[str, Any] = {"first": _list(records.first), "last": _list(records.last)}
    return found | {"gone": True} if records.gone else found


def _list(record: RecordId | None) -> list[int] | None:
    return None if record is None else [record.queue_offset, record.physical_offset, record.store_ms]


def _queue_records(value: object) -> QueueRecords:
    if not isinstance(value, dict):
        raise ValueError(f"expected the records of a queue, not {value!r}")
    first, last = (_record_id(value.get(name)) for name in ("first", "last"))
    return QueueRecords(first, last, value.get("gone") is True)


def _record_id(value: object) -> RecordId | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or len(value) != 3:
        raise ValueError(f"expected queue offset, physical offset and store time, not {value!r}")
    queue_offset, physical_offset, store_ms = value
    return RecordId(number(queue_offset, 0), number(physical_offset, UNKNOWN), number(store_ms, LONG_MIN))
