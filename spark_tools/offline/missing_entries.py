"""Missing entries: messages in the log that their queue has no entry for, because its files are missing or too short.

A reader of queues would pass over them. So the sizes in the entries of all queues are added up for each file of the
log. A file that they do not fill is walked, and its records are compared with the ends of their queues. Records of a
deleted topic have no entries either: they are older than the first entry of the topic that has their name now.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firearrow._native.columnar.record_spans import Spans, walk
from firearrow._native.offline.log_reader import LogReader
from firearrow._native.offline.queue_reader import PRE_BLANK_SIZE
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.columns import arrays
from firearrow.spark_tools.base.source import LMQ_PREFIX, QueueRange
from firearrow.spark_tools.offline.store import OfflineStore
from firearrow.spark_tools.offline.tail_check import READS_MAX, RETRY_S, Ranges, found_again

NO_ENTRY = "their records have no entries: start the broker once, it adds them"
NO_ENTRY_BEFORE = "their records have no entries: the queue's first files were deleted"
COLUMNS = "topic", "queueId", "queueOffset", "sysFlag", "physicalOffset"
WALK_BYTES = 16 << 20
TRANSACTION, COMMITTED = 0xC, 0x8
"""Bits of a sysFlag: prepared and rolled back records have no entry."""
NONE = (1 << 63) - 1
NOTHING = np.zeros(0, np.intp)
"""An index that selects nothing."""
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


def check_entries(
    store: OfflineStore, parts: Sequence[QueueRange], pause: Callable[[float], None] = time.sleep
) -> list[tuple[QueueRange, str]]:
    """For each queue of `parts`, the messages without entries: after its last entry if the part ends there,
    before its first if the part begins there. Also those of queues that only the log knows. A broker that runs
    writes the record first: what is found is looked for again."""
    found = missing_entries(store, parts)
    for _ in range(READS_MAX if store.is_marked else 0):
        if not found:
            break
        pause(RETRY_S)
        found = found_again(found, missing_entries(store, parts))
    return [(QueueRange(queue, *found[queue, why]), why) for queue, why in sorted(found)]


def missing_entries(store: OfflineStore, parts: Sequence[QueueRange]) -> Ranges:
    """At this moment."""
    parts = [part for part in parts if not part.queue.topic.startswith(LMQ_PREFIX)]
    regions = unaccounted_regions(store) if parts else []
    if not regions:
        return {}
    expected = ExpectedEntries(store, parts)
    for start, end in regions:
        log = LogReader(store.log, start, end, lambda *torn: None, check_crc=False)
        for spans in log.spans(WALK_BYTES):
            expected.add(spans)
    return expected.missing()


@dataclass(slots=True)
class QueueState:
    """[first, end) have entries; the physical offsets are those in the first and the last one. Of the walked
    records: the lowest offset, and without entries the lowest one before `first` and the highest one after the
    last entry."""

    first: int = 0
    end: int = 0
    first_physical: int = 0
    last_physical: int = -1
    lowest: int = NONE
    before: int = NONE
    highest: int = -1


class ExpectedEntries:
    """Compares records with the entries of some topics' queues."""

    def __init__(self, store: OfflineStore, parts: Sequence[QueueRange]) -> None:
        self._broker = store.name
        self._parts = {part.queue: part for part in parts}
        topics = {part.queue.topic for part in parts}
        known = {queue: _state(store, queue) for topic in topics for queue in store.queues(topic)}
        self._begins = {topic: _begin(store, topic, known) for topic in topics}
        self._known = frozenset(known)
        self._states = known

    def add(self, spans: Spans) -> None:
        """Records in the order of the log."""
        names, *columns = arrays(spans, COLUMNS, ())
        queue_ids, numbers, flags, physicals = (each.to_numpy(zero_copy_only=False) for each in columns)
        encoded = names.dictionary_encode()
        topics, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
        entered = np.isin(flags & TRANSACTION, (0, COMMITTED))
        for code, topic in enumerate(topics):
            of_topic = entered & (codes == code) if topic in self._begins else NOTHING
            for queue_id in np.unique(queue_ids[of_topic]):
                chosen = of_topic & (queue_ids == queue_id)
                queue = MessageQueue(topic, self._broker, int(queue_id))
                self._add(queue, numbers[chosen], physicals[chosen])

    def _add(self, queue: MessageQueue, numbers: Numbers, physicals: Numbers) -> None:
        state = self._states.setdefault(queue, QueueState())
        state.lowest = min(state.lowest, int(numbers.min()))
        current = physicals >= self._begins[queue.topic]
        before = numbers[current & (numbers < state.first)]
        after = numbers[current & (numbers >= state.end) & (physicals > state.last_physical)]
        state.before = min(state.before, int(before.min(initial=NONE)))
        state.highest = max(state.highest, int(after.max(initial=-1)))

    def missing(self) -> Ranges:
        found: Ranges = {}
        for queue, state in self._states.items():
            part = self._parts.get(queue)
            if part is None and queue in self._known:
                continue
            if state.before < state.first and (part is None or part.start <= state.first):
                found[queue, NO_ENTRY_BEFORE] = state.before, state.first
            if state.highest >= 0 and (part is None or part.end >= state.end):
                low = state.end if state.first < state.end else state.lowest
                found[queue, NO_ENTRY] = low, state.highest + 1
        return found


def _state(store: OfflineStore, queue: MessageQueue) -> QueueState:
    with store.queue(queue) as stored:
        first, end = stored.bounds()
        if first == end:
            return QueueState(first, end)
        low, high = stored.physical_offset(first), stored.physical_offset(end - 1)
        return QueueState(first, end, low or 0, -1 if high is None else high)


def _begin(store: OfflineStore, topic: str, states: Mapping[MessageQueue, QueueState]) -> int:
    """Where the topic's records begin: older ones are of a deleted topic with its name."""
    of_topic = [state for queue, state in states.items() if queue.topic == topic and state.first < state.end]
    if any(state.first > 0 for state in of_topic):
        return store.log.first
    return min((state.first_physical for state in of_topic), default=store.deleted_until(topic))


def unaccounted_regions(store: OfflineStore) -> list[tuple[int, int]]:
    """Physical offsets [start, end) of the parts of the log in which some bytes belong to no entry of a queue,
    each one file or the end of one."""
    store.log.refresh()
    segments = store.log.segments
    bases = np.array([segment.base for segment in segments], np.int64)
    sums, lasts = np.zeros(len(segments), np.int64), bases.copy()
    for physicals, sizes in _records(store, int(bases[0]) if segments else 0):
        at = np.searchsorted(bases, physicals, side="right") - 1
        np.add.at(sums, at, sizes)
        np.maximum.at(lasts, at, physicals + sizes)
    found = []
    for segment, covered, last in zip(segments, sums.tolist(), lasts.tolist(), strict=True):
        if covered != last - segment.base:
            found.append((segment.base, segment.end))
        elif last < segment.end and _has_record(store, last):
            found.append((last, segment.end))
    return found


def _records(store: OfflineStore, first: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Physical offsets and sizes in the entries of all queues."""
    for queue in store.stored_queues():
        if queue.topic.startswith(LMQ_PREFIX):
            continue
        with store.queue(queue) as stored:
            for entries in stored.all_entries():
                physicals, sizes = entries["physical"].astype(np.int64), entries["size"].astype(np.int64)
                real = (physicals >= first) & (sizes > 0) & (sizes < PRE_BLANK_SIZE)
                yield physicals[real], sizes[real]


def _has_record(store: OfflineStore, physical: int) -> bool:
    mapping = store.log.window(physical)
    if mapping is None:
        return False
    position = physical - mapping.base
    return len(walk(mapping.window, position, position + 1, base=mapping.base)[0]) > 0
