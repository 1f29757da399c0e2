"""Tail check: finds entries without records and torn bytes past the ends of queues.

A killed broker leaves them and repairs them at its next start. A running broker shows them for moments, so
findings are checked again while the abort file exists. One thread, that of the store.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow._native.offline.log_reader import LogReader
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.store import OfflineStore

NO_RECORD = "their entries point to no whole record: the log ends before them"
READS_MAX = 20
RETRY_S = 0.05
WALK_BYTES = 16 << 20
log = logging.getLogger("firearrow.spark")
Ranges = dict[tuple[MessageQueue, str], tuple[int, int]]
"""Queue and reason → offsets."""


@dataclass(frozen=True, slots=True)
class TailState:
    ranges: Ranges = field(default_factory=dict)
    torn: frozenset[int] = frozenset()
    """Physical offsets where bytes begin that are not a record."""

    def __bool__(self) -> bool:
        return bool(self.ranges or self.torn)

    def and_still(self, later: "TailState") -> "TailState":
        """The findings that both states have."""
        return TailState(found_again(self.ranges, later.ranges), self.torn & later.torn)


def found_again(ranges: Ranges, later: Ranges) -> Ranges:
    """What both have."""
    shared = {
        key: (max(start, later[key][0]), min(end, later[key][1]))
        for key, (start, end) in ranges.items()
        if key in later
    }
    return {key: (start, end) for key, (start, end) in shared.items() if start < end}


def check_tail(
    store: OfflineStore, queues: Sequence[MessageQueue], pause: Callable[[float], None] = time.sleep
) -> list[tuple[QueueRange, str]]:
    """The losses of these queues in order, with the reason. Torn bytes belong to no queue and are logged."""
    seen = read_tail(store, queues)
    for _ in range(READS_MAX if store.is_marked else 0):
        if not seen:
            break
        pause(RETRY_S)
        seen = seen.and_still(read_tail(store, queues))
    for physical in sorted(seen.torn):
        log.warning(
            "%s: bytes that are not a record from %d on, past the ends of the queues", store.root, physical
        )
    return [(QueueRange(queue, *seen.ranges[queue, why]), why) for queue, why in sorted(seen.ranges)]


def read_tail(store: OfflineStore, queues: Sequence[MessageQueue]) -> TailState:
    """The findings at this moment. The log is walked from the start of the newest file, or from the newest
    entry of these queues."""
    ranges: Ranges = {}
    known = store.log.newest()
    for queue in queues:
        with store.queue(queue) as stored:
            _, end = stored.bounds()
            written = stored.entries.end()
            if end < written:
                ranges[queue, NO_RECORD] = end, written
            known = max(known, stored.last_whole())
    torn: set[int] = set()
    walk = LogReader(store.log, known, None, lambda start, end, why: torn.add(start), check_crc=False)
    for _ in walk.spans(WALK_BYTES):
        pass
    return TailState(ranges, frozenset(torn))
