"""Log order splits: splits many queues by chunks of the log, so that the log is read only once.

The records of all queues are interleaved in the log, so reading queue after queue reads the log once per
queue. A group of ranges whose records are in one chunk of the log reads that chunk once. The order of a
queue is kept within a group, and from group to group in list order.
"""

from collections.abc import Sequence
from itertools import pairwise

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.store import OfflineStore

CHUNKS_MAX = 100_000


def log_order_splits(
    store: OfflineStore, parts: Sequence[QueueRange], bytes_each: int
) -> list[tuple[QueueRange, ...]]:
    """Every offset of `parts` once, in groups of about `bytes_each` bytes of log; sizes are divided in
    proportion."""
    parts = [part for part in parts if len(part)]
    size, count = sum(part.size for part in parts), sum(map(len, parts))
    # Rounded: a small last chunk would leave the other cores idle.
    chunks = min(round(size / max(1, bytes_each)), count, CHUNKS_MAX)
    ends = [physical for part in parts for physical in _ends(store, part)]
    if chunks <= 1 or not ends:
        return [tuple(parts)] if parts else []
    low, high = min(ends), max(ends) + 1
    edges = [low + (high - low) * number // chunks for number in range(1, chunks)]
    groups: list[list[QueueRange]] = [[] for _ in range(chunks)]
    for part in parts:
        for number, cut in enumerate(_cut(store, part, edges)):
            if len(cut):
                groups[number].append(cut)
    return [tuple(group) for group in groups if group]


def _ends(store: OfflineStore, part: QueueRange) -> list[int]:
    """The physical offsets of the first and last record, if they have entries."""
    with store.queue(part.queue) as queue:
        first, end = queue.bounds()
        numbers = (max(part.start, first), min(part.end, end) - 1)
        found = [queue.physical_offset(number) for number in numbers if first <= number < end]
    return [physical for physical in found if physical is not None]


def _cut(store: OfflineStore, part: QueueRange, edges: list[int]) -> list[QueueRange]:
    """One range for each chunk of the log, possibly empty. Missing offsets stay with their neighbours."""
    with store.queue(part.queue) as queue:
        first, end = queue.bounds()
        start, stop = max(part.start, first), min(part.end, end)
        inner = [queue.offset_from(edge, start, stop) if start < stop else part.end for edge in edges]
    return [_range(part, *pair) for pair in pairwise([part.start, *inner, part.end])]


def _range(part: QueueRange, start: int, end: int) -> QueueRange:
    queue: MessageQueue = part.queue
    return QueueRange(queue, start, end, part.size * max(0, end - start) // len(part))
