"""Queues read abreast: a plan by pieces of the log instead of by queues, for who wants all of many queues.

The records of all queues lie mixed in the log, so that reading one queue after another reads the log once for each. A
group of ranges that lie in one piece of the log reads it once. The order within a queue holds within a group, and from
group to group as they are listed.
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
    """Every offset of `parts` once, in groups of about `bytes_each` bytes of log; sizes in proportion."""
    parts = [part for part in parts if len(part)]
    size, count = sum(part.size for part in parts), sum(map(len, parts))
    pieces = min(
        round(size / max(1, bytes_each)), count, CHUNKS_MAX
    )  # a small last one would keep a core waiting
    places = [place for part in parts for place in _places(store, part)]
    if pieces <= 1 or not places:
        return [tuple(parts)] if parts else []
    low, high = min(places), max(places) + 1
    edges = [low + (high - low) * number // pieces for number in range(1, pieces)]
    groups: list[list[QueueRange]] = [[] for _ in range(pieces)]
    for part in parts:
        for number, piece in enumerate(_cut(store, part, edges)):
            if len(piece):
                groups[number].append(piece)
    return [tuple(group) for group in groups if group]


def _places(store: OfflineStore, part: QueueRange) -> list[int]:
    """Where the first and the last record lie, as far as there are entries."""
    with store.queue(part.queue) as queue:
        first, end = queue.bounds()
        ends = (max(part.start, first), min(part.end, end) - 1)
        found = [queue.place_of(number) for number in ends if first <= number < end]
    return [place for place in found if place is not None]


def _cut(store: OfflineStore, part: QueueRange, edges: list[int]) -> list[QueueRange]:
    """One range a piece of the log, maybe empty. What is asked for and is not there goes with its neighbours."""
    with store.queue(part.queue) as queue:
        first, end = queue.bounds()
        start, stop = max(part.start, first), min(part.end, end)
        inner = [queue.offset_behind(edge, start, stop) if start < stop else part.end for edge in edges]
    return [_chunk(part, *pair) for pair in pairwise([part.start, *inner, part.end])]


def _chunk(part: QueueRange, start: int, end: int) -> QueueRange:
    queue: MessageQueue = part.queue
    return QueueRange(queue, start, end, part.size * max(0, end - start) // len(part))
