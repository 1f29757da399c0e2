"""Ranges narrowed to where the store's key index shows the wanted keys, so that a large store is not read for a few.

Nothing is left out on the word of what is damaged: parts of the log of which no index file tells, or only one that
shows a key where it is not, and queues whose entries are not in the log's order are read as they would be without the
index. Other messages stay in, as different keys may have the same hash: the choice is asked anyway.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from firearrow._native.base.hash import key_hash
from firearrow._native.columnar.record_spans import walk
from firearrow._native.offline.index_reader import IndexHits, IndexReader, Stretch, outside
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.store.log.record import Record, RecordError
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.queue import StoredQueue
from firearrow.spark_tools.offline.store import OfflineStore

KEYS_MAX = 10_000
"""Keys, times topics, that are looked up; of more the store is read."""
PLACES_MAX = 10_000
"""Entries of these keys in one store's index; of more it is read."""
NEAR = 256
"""Offsets of a queue that lie no farther apart are one range: to begin another costs as much as to read so many."""
STEADY = 1000
"""Entries around an edge that must be in the log's order."""
ANYWHERE: Stretch = (0, (1 << 63) - 1)
log = logging.getLogger("firearrow.spark")


def by_index(
    store: OfflineStore, parts: Sequence[QueueRange], message_filter: MessageFilter
) -> list[QueueRange]:
    """What of `parts` may hold messages with one of the choice's unique ids, or else keys; sizes are not known. All as
    they are if the choice has neither, or too many."""
    wanted = message_filter.unique_ids or message_filter.keys
    topics = {part.queue.topic for part in parts}
    if not wanted or not topics or not all(map(_is_hashed, wanted)):
        return list(parts)
    if len(wanted) * len(topics) > KEYS_MAX:
        log.warning(
            "%s: its index is not asked for %d keys of %d topics", store.root, len(wanted), len(topics)
        )
        return list(parts)
    index = IndexReader(store.index, lambda why: log.warning("the log is read instead: %s", why))
    within = _span(store, parts)
    told = index.lookup({key_hash(topic, key) for topic in topics for key in wanted}, within, most=PLACES_MAX)
    if told is None:
        log.warning("%s: its index shows more than %d messages of these keys", store.root, PLACES_MAX)
        return list(parts)
    hits: dict[tuple[str, int], set[int]] = {}
    gaps = outside([each.stretch for each in told if _is_true(store.log, each, hits)], within)
    return [piece for part in parts for piece in _narrowed(store, part, gaps, hits)]


def _is_hashed(key: str) -> bool:
    """Brokers hash text; bytes that are none have no hash that all agree on."""
    try:
        return bool(key.encode())
    except UnicodeEncodeError:
        return False


def _span(store: OfflineStore, parts: Sequence[QueueRange]) -> Stretch:
    """Where in the log the records of `parts` lie."""
    low, high = ANYWHERE[1], 0
    for part in parts:
        with store.queue(part.queue) as queue:
            start, stop = _there(queue, part)
            if start >= stop:
                continue
            heads = queue.places(start, min(start + STEADY, stop))
            tails = queue.places(max(start, stop - STEADY), stop)
            if len(heads) < min(STEADY, stop - start) or len(tails) < len(heads):
                return ANYWHERE
            low, high = min(low, int(heads.min())), max(high, int(tails.max()) + 1)
    return max(0, low), high


def _is_true(records: LogFiles, told: IndexHits, hits: dict[tuple[str, int], set[int]]) -> bool:
    """Whether each record that an index file shows has a key of that hash: if not, one of both is damaged. `hits` get
    topic and queue id, and the queue offset."""
    for wanted, place in told.entries:
        record = _record(records, place)
        if record is None or wanted not in _hashes(record):
            log.warning("the log is read instead: %s shows a key at %d, where it is not", told.path, place)
            return False
        hits.setdefault((record.topic, record.queue_id), set()).add(record.queue_offset)
    return True


def _hashes(record: Record) -> set[int]:
    """Under which the index has it; new brokers' have the tag, too."""
    named = record.properties
    texts = [named.get("UNIQ_KEY", ""), *named.get("KEYS", "").split(" "), f"T#{named.get('TAGS', '')}"]
    return {key_hash(record.topic, text) for text in texts if text}


def _record(records: LogFiles, place: int) -> Record | None:
    mapping = records.window(place)
    if mapping is None:
        return None
    at = place - mapping.base
    spans, _, _ = walk(mapping.window, at, at + 1, base=mapping.base)
    try:
        return spans[0] if len(spans) else None
    except RecordError:
        return None


def _narrowed(
    store: OfflineStore, part: QueueRange, gaps: Sequence[Stretch], hits: Mapping[tuple[str, int], set[int]]
) -> list[QueueRange]:
    """The hits and what lies in gaps. Records of a light queue are indexed under another topic: it is left as it is."""
    with store.queue(part.queue) as queue:
        start, stop = _there(queue, part)
        if queue.is_lmq or start >= stop:
            return [part]
        found = [(part.start, start), (stop, part.end)]  # not there any more, which is told when it is read
        of_queue = hits.get((part.queue.topic, part.queue.queue_id), set())
        found += [(hit, hit + 1) for hit in of_queue if part.start <= hit < part.end]
        for gap in gaps:
            low = _edge(queue, gap[0], start, stop)
            high = None if low is None else _edge(queue, gap[1], low, stop)
            if low is None or high is None:
                return [part]
            found.append((low, high))
    near = _joined([each for each in found if each[0] < each[1]], NEAR)
    return [QueueRange(part.queue, *each) for each in near]


def _there(queue: StoredQueue, part: QueueRange) -> tuple[int, int]:
    first, end = queue.bounds()
    return max(part.start, first), min(part.end, end)


def _edge(queue: StoredQueue, physical: int, start: int, stop: int) -> int | None:
    """The first of [start, stop) whose record lies at `physical` or behind; None if entries around it are not in order,
    or not there: one bad entry leads a binary search astray, and then stands beside what it finds."""
    number = queue.offset_behind(physical, start, stop)
    low, high = max(start, number - STEADY), min(stop, number + STEADY)
    places = queue.places(low, high)
    before, behind = places[: number - low], places[number - low :]
    steady = len(places) == high - low and bool((before < physical).all() and (behind >= physical).all())
    return number if steady else None


def _joined(stretches: Iterable[Stretch], apart: int) -> list[Stretch]:
    """The same and what is between such as are not more than `apart` from each other."""
    found: list[Stretch] = []
    for start, end in sorted(stretches):
        if found and start - found[-1][1] <= apart:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
