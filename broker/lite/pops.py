"""LitePops: takes messages of a client's lite topics, in order. Apache: PopLiteMessageProcessor. Loop thread.

Messages of several lite topics come in one answer. A queue is blocked for its group until they are acknowledged or
become visible again; what was popped is known in memory only, and comes again after a restart.
"""

import struct
from collections.abc import Iterator

from firearrow._native.store.log.record import RecordError, decode
from firearrow._native.store.message_store import GetResult
from firearrow.broker.append.lmq import LMQ_QUEUE_ID, offset_in
from firearrow.broker.base.stats import Stats
from firearrow.broker.lite.events import LiteEvents
from firearrow.broker.lite.subscriptions import LiteClient
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.pop import NOTHING_WANTED, PopQuery, PopResult, PopService

READS_MAX = 4
"""Of one queue, while its first messages are deleted."""
_SIZE = struct.Struct(">i")


class LitePops:
    """`pops` has the same `orders`."""

    def __init__(self, pops: PopService, orders: ConsumerOrderInfo, events: LiteEvents, stats: Stats) -> None:
        self._pops = pops
        self._orders = orders
        self._events = events
        self._stats = stats

    def pop(self, query: PopQuery, client: LiteClient, popped: PopResult) -> None:
        """Add to `popped` what the client's lite topics have."""
        self._events.begin_attempt(client, query.attempt)
        found: list[str] = []
        while popped.count < query.count_max and (queue := self._events.take(client)) is not None:
            before = popped.count
            self._pop(query, popped, queue)
            if popped.count > before:
                found.append(queue)
        if found:
            self._events.end_attempt(client, query.attempt, found)

    def _pop(self, query: PopQuery, popped: PopResult, queue: str) -> None:
        if self._orders.blocked(queue, query.group, LMQ_QUEUE_ID, query.attempt, query.invisible_ms):
            return
        for _ in range(READS_MAX):
            if self._pops.unread(query, queue, LMQ_QUEUE_ID) == 0:
                return
            start = self._pops.start_offset(query, queue, LMQ_QUEUE_ID)
            start, got = self._pops.read(query, queue, LMQ_QUEUE_ID, start, query.count_max - popped.count)
            if got.count:
                return self._add(query, popped, queue, start, got)
            if got.status not in NOTHING_WANTED or got.next_offset == start:
                return
            self._pops.move(query, queue, LMQ_QUEUE_ID, got.next_offset)

    def _add(self, query: PopQuery, popped: PopResult, queue: str, start: int, got: GetResult) -> None:
        offsets = list(_offsets(got.body, queue, start))
        order = self._orders.popped(
            queue, query.group, LMQ_QUEUE_ID, query.attempt, popped.pop_ms, query.invisible_ms, offsets
        )
        self._pops.move(query, queue, LMQ_QUEUE_ID, start)
        popped.bodies.append(got.body)
        popped.count += got.count
        popped.order_counts += [str(order.counts.get(offset, 0)) for offset in offsets]
        self._stats.got(query.group, query.topic, got.count, len(got.body))


def _offsets(body: bytes, queue: str, start: int) -> Iterator[int]:
    """The offset of each record in the lite topic's queue."""
    at = 0
    for n in range(len(body)):
        if at >= len(body):
            return
        size = _SIZE.unpack_from(body, at)[0]
        try:
            found = offset_in(decode(memoryview(body)[at : at + size], False).properties, queue)
        except RecordError:
            found = None
        yield start + n if found is None else found
        at += size
