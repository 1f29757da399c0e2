"""Index plan: narrows ranges to the messages that the key index shows for the filter's keys.

Nothing is left out because of damaged files: parts of the log that no index file covers, or only one with a
wrong hit, and queues whose entries are not in log order are read as without the index. Different keys may
have the same hash, so the result may include other messages; the filter is applied anyway.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from firearrow._native.base.hash import key_hash
from firearrow._native.columnar.record_spans import walk
from firearrow._native.offline.index_reader import IndexHits, IndexReader, Interval, outside
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.store.log.record import Record, RecordError
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.queue import StoredQueue
from firearrow.spark_tools.offline.store import OfflineStore

KEYS_MAX = 10_000
"""Keys times topics to look up; beyond that the store is read without the index."""
HITS_MAX = 10_000
"""Index entries of these keys in one store; beyond that the store is read without the index."""
GAP_MAX = 256
"""Hits at most this many queue offsets apart share a range: starting a range costs as much as reading so
many."""
SORTED_ENTRIES = 1000
"""Entries on either side of a boundary that must be in log order."""
WHOLE_LOG: Interval = (0, (1 << 63) - 1)
log = logging.getLogger("firearrow.spark")


def by_index(
    store: OfflineStore, parts: Sequence[QueueRange], message_filter: MessageFilter
) -> list[QueueRange]:
    """The parts of `parts` that may hold messages with one of the filter's unique ids, or else keys; sizes
    are unknown.

    Returns `parts` unchanged if the filter has neither, or too many.
    """
    keys = message_filter.unique_ids or message_filter.keys
    topics = {part.queue.topic for part in parts}
    if not keys or not topics or not all(map(_is_hashed, keys)):
        return list(parts)
    if len(keys) * len(topics) > KEYS_MAX:
        log.info(
            "%s: too many keys for its index, %d of %d topics: the whole ranges are read",
            store.root,
            len(keys),
            len(topics),
        )
        return list(parts)
    index = IndexReader(store.index, _warn)
    within = _span(store, parts)
    hashes = {key_hash(topic, key) for topic in topics for key in keys}
    found = index.lookup(hashes, within, hits_max=HITS_MAX)
    if found is None:
        log.info(
            "%s: its index shows more than %d messages with these keys: the whole ranges are read",
            store.root,
            HITS_MAX,
        )
        return list(parts)
    hits: dict[tuple[str, int], set[int]] = {}
    gaps = outside([each.covered for each in found if _collect(store.log, each, hits)], within)
    return [narrow for part in parts for narrow in _narrowed(store, part, gaps, hits)]


def _is_hashed(key: str) -> bool:
    """Whether the key is valid text. Bytes that are not have no hash that all brokers agree on."""
    try:
        return bool(key.encode())
    except UnicodeEncodeError:
        return False


def _span(store: OfflineStore, parts: Sequence[QueueRange]) -> Interval:
    """The part of the log that holds the records of `parts`."""
    low, high = WHOLE_LOG[1], 0
    for part in parts:
        with store.queue(part.queue) as queue:
            start, stop = _available(queue, part)
            if start >= stop:
                continue
            heads = queue.physical_offsets(start, min(start + SORTED_ENTRIES, stop))
            tails = queue.physical_offsets(max(start, stop - SORTED_ENTRIES), stop)
            if len(heads) < min(SORTED_ENTRIES, stop - start) or len(tails) < len(heads):
                return WHOLE_LOG
            low, high = min(low, int(heads.min())), max(high, int(tails.max()) + 1)
    return max(0, low), high


def _collect(records: LogFiles, found: IndexHits, hits: dict[tuple[str, int], set[int]]) -> bool:
    """Add the hits of an index file to `hits`: (topic, queue id) → queue offsets.

    False: a record does not have a key with that hash, so the index file or the log is damaged.
    """
    for hash_, physical in found.entries:
        record = _record(records, physical)
        if record is None or hash_ not in _hashes(record):
            _warn(f"{found.path} shows a key at {physical}, but the record there does not have it")
            return False
        hits.setdefault((record.topic, record.queue_id), set()).add(record.queue_offset)
    return True


def _hashes(record: Record) -> set[int]:
    """The hashes under which the index lists the record; newer brokers also index the tag."""
    named = record.properties
    keys = [named.get("UNIQ_KEY", ""), *named.get("KEYS", "").split(" "), f"T#{named.get('TAGS', '')}"]
    return {key_hash(record.topic, key) for key in keys if key}


def _record(records: LogFiles, physical: int) -> Record | None:
    mapping = records.window(physical)
    if mapping is None:
        return None
    at = physical - mapping.base
    spans, _, _ = walk(mapping.window, at, at + 1, base=mapping.base)
    try:
        return spans[0] if len(spans) else None
    except RecordError:
        return None


def _narrowed(
    store: OfflineStore,
    part: QueueRange,
    gaps: Sequence[Interval],
    hits: Mapping[tuple[str, int], set[int]],
) -> list[QueueRange]:
    """The hits, and what the index does not cover. Light queues stay whole: their records have keys of
    other topics."""
    with store.queue(part.queue) as queue:
        start, stop = _available(queue, part)
        if queue.is_lmq or start >= stop:
            return [part]
        found = [
            (part.start, start),
            (stop, part.end),
        ]  # missing messages: reported as lost when they are read
        of_queue = hits.get((part.queue.topic, part.queue.queue_id), set())
        found += [(hit, hit + 1) for hit in of_queue if part.start <= hit < part.end]
        for gap in gaps:
            low = _queue_offset(queue, gap[0], start, stop)
            high = None if low is None else _queue_offset(queue, gap[1], low, stop)
            if low is None or high is None:
                return [part]
            found.append((low, high))
    joined = _joined([each for each in found if each[0] < each[1]], GAP_MAX)
    return [QueueRange(part.queue, *each) for each in joined]


def _available(queue: StoredQueue, part: QueueRange) -> tuple[int, int]:
    first, end = queue.bounds()
    return max(part.start, first), min(part.end, end)


def _queue_offset(queue: StoredQueue, physical: int, start: int, stop: int) -> int | None:
    """The first offset of [start, stop) whose record is at or after `physical`.

    None: the entries around it are missing or out of order. A bad entry misleads the binary search, and is
    then next to what the search finds.
    """
    number = queue.offset_from(physical, start, stop)
    low, high = max(start, number - SORTED_ENTRIES), min(stop, number + SORTED_ENTRIES)
    found = queue.physical_offsets(low, high)
    left, right = found[: number - low], found[number - low :]
    in_order = len(found) == high - low and bool((left < physical).all() and (right >= physical).all())
    return number if in_order else None


def _joined(intervals: Iterable[Interval], gap_max: int) -> list[Interval]:
    """The intervals in order; those with a gap of at most `gap_max` become one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start - found[-1][1] <= gap_max:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _warn(damage: str) -> None:
    log.warning("%s; the log is read instead", damage)
