"""Takes messages from a topic's queues for a group, and writes check points for them. Loop thread.

The group's offset moves in the write batch that stores the check point: nothing is in flight in memory only,
and a kill leaves both or neither. `revive` redelivers messages that are not acknowledged.

Messages of retry topics are rewritten for the client (`rewrite_record`): they get the original topic and
their receipt handle as a property. All other messages are sent as they are in the log.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import GetResult, GetStatus, MessageStore, PutResult
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.event_counts import PUT_OK, REVIVE_IN, TYPE_CHECK_POINT
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.stats import Stats
from firearrow.broker.pop.checkpoints import PopCheckPoint, revive_topic
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.receipt_handles import kind_of, receipt_handle_text
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.subscription_filter import EntryFilter

SYS_FLAG_AT, BODY_AT_V4 = 36, 84
BORN_V6, STORE_V6 = 0x10, 0x20
HOST_V6_MORE = 12
MAGIC_V1 = struct.pack(">i", -626843481)
_I32, _I16 = struct.Struct(">i"), struct.Struct(">h")


def rewrite_record(record: bytes, topic: str, receipt_handle: str) -> bytes:
    """Return `record` with another topic (at most 127 bytes) and a receipt handle, which counts as the last of its
    name: a sender may have put one into an item of a batch.

    The caller has checked the record.
    """
    (sys_flag,) = _I32.unpack_from(record, SYS_FLAG_AT)
    at = BODY_AT_V4 + HOST_V6_MORE * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))
    body_end = at + 4 + _I32.unpack_from(record, at)[0]
    if record[4:8] == MAGIC_V1:
        properties_at = body_end + 1 + record[body_end]
    else:
        properties_at = body_end + 2 + _I16.unpack_from(record, body_end)[0]
    properties = record[properties_at + 2 :]
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties += f"{Property.POP_CHECK_POINT}\x01{receipt_handle}\x02".encode()
    name = topic.encode()
    tail = bytes((len(name),)) + name + _I16.pack(len(properties)) + properties
    size = _I32.pack(body_end + len(tail))
    return size + MAGIC_V1 + record[8:body_end] + tail


WRONG_OFFSET = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
NOTHING_WANTED = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_FOUND_NULL, GetStatus.MESSAGE_WAS_REMOVING)
_SIZE, _QUEUE_OFFSET = struct.Struct(">i"), struct.Struct(">q")
QUEUE_OFFSET_AT = 20


class PopQuery(NamedTuple):
    """What one request asks for, except the queues. `attempt`: the attempt id of an ordered pop."""

    group: str
    topic: str
    count_max: int
    invisible_ms: int
    from_start: bool
    ordered: bool
    attempt: str | None
    selection: EntryFilter


@dataclass(slots=True)
class PopResult:
    """What a request has found so far, over all queues.

    `last`: the last check point staged; the answer may be sent once it is stored. `skipped`: the offset moved
    past messages that the filter rejects. `rest`: messages left in the queues.
    """

    pop_ms: int
    revive_queue: int
    count: int = 0
    rest: int = 0
    skipped: bool = False
    bodies: list[bytes] = field(default_factory=list)
    start_offsets: list[str] = field(default_factory=list)
    message_offsets: list[str] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    last: PutResult | None = None


class PopService:
    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        offsets: ConsumerOffsets,
        order_info: ConsumerOrderInfo,
        config: Config,
        clock: Clock,
        stats: Stats,
    ) -> None:
        self._store = store
        self._appender = appender
        self._offsets = offsets
        self._order_info = order_info
        self._config = config
        self._clock = clock
        self._stats = stats
        self._revive_topic = revive_topic(config.options.cluster_name)

    def pop(self, query: PopQuery, popped: PopResult, topic: str, queue_id: int) -> None:
        """Take messages from one queue of `topic`, which is the requested topic or its retry topic.

        Raises PutRefused; `popped` then keeps what was found before.
        """
        start = self.start_offset(query, topic, queue_id)
        if query.ordered and self._order_info.blocked(
            topic, query.group, queue_id, query.attempt, query.invisible_ms
        ):
            return
        capacity = query.count_max - popped.count
        if capacity <= 0:
            popped.rest += max(self._store.reader.max_offset(topic, queue_id) - start, 0)
            return
        start, got = self.read(query, topic, queue_id, start, capacity)
        if got.count:
            self._add_found(query, popped, topic, queue_id, start, got)
        elif got.status in NOTHING_WANTED and got.next_offset != start:
            self._offsets.commit(query.group, topic, queue_id, got.next_offset)
            popped.skipped = True
        popped.rest += max(got.max_offset - got.next_offset, 0)

    def unread(self, query: PopQuery, topic: str, queue_id: int) -> int:
        """Messages that the group has not acknowledged, of a queue of which it has an offset; else all that there
        are."""
        committed = self._offsets.query(query.group, topic, queue_id)
        return self._store.reader.max_offset(topic, queue_id) - max(committed, 0)

    def move(self, query: PopQuery, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group goes on there."""
        self._offsets.commit(query.group, topic, queue_id, queue_offset)

    def revive_message(self, checkpoint: PopCheckPoint, revive_queue: int) -> Message:
        return checkpoint.message(self._revive_topic, revive_queue, self._clock.now_ms())

    def read(
        self, query: PopQuery, topic: str, queue_id: int, start: int, capacity: int
    ) -> tuple[int, GetResult]:
        tags, accept = query.selection
        got = self._store.reader.get(topic, queue_id, start, capacity, tags=tags, accept=accept)
        if got.status not in WRONG_OFFSET:
            return start, got
        self._offsets.commit(query.group, topic, queue_id, got.next_offset)
        return got.next_offset, self._store.reader.get(
            topic, queue_id, got.next_offset, capacity, tags=tags, accept=accept
        )

    def _add_found(
        self, query: PopQuery, popped: PopResult, topic: str, queue_id: int, start: int, got: GetResult
    ) -> None:
        records = list(_split(got.body)) if topic != query.topic else []
        offsets = [
            _QUEUE_OFFSET.unpack_from(got.body, at + QUEUE_OFFSET_AT)[0] for at, _ in _record_bounds(got.body)
        ]
        if query.ordered:
            counts = self._order_info.update(
                topic, query.group, queue_id, query.attempt, popped.pop_ms, query.invisible_ms, offsets
            )
            popped.order_counts.append(counts)
            self._offsets.commit(query.group, topic, queue_id, start)
        else:
            popped.last = self._check_point(query, popped, topic, queue_id, start, offsets, got)
        if records and not self._config.options.pop_actual_retry_topic:
            broker = self._config.options.broker_name
            popped.bodies += [
                rewrite_record(
                    record,
                    query.topic,
                    receipt_handle_text(
                        start,
                        popped.pop_ms,
                        query.invisible_ms,
                        popped.revive_queue,
                        topic,
                        broker,
                        queue_id,
                        offset,
                    ),
                )
                for record, offset in zip(records, offsets, strict=True)
            ]
        else:
            popped.bodies.append(got.body)
        popped.count += got.count
        kind = kind_of(topic)
        popped.start_offsets.append(f"{kind} {queue_id} {start}")
        popped.message_offsets.append(f"{kind} {queue_id} {','.join(map(str, offsets))}")
        self._stats.got(query.group, topic, got.count, len(got.body))

    def _check_point(
        self,
        query: PopQuery,
        popped: PopResult,
        topic: str,
        queue_id: int,
        start: int,
        offsets: list[int],
        got: GetResult,
    ) -> PutResult:
        """Stage a check point and move the offset; after a crash both count, or neither."""
        checkpoint = PopCheckPoint(
            topic,
            query.group,
            queue_id,
            start,
            popped.pop_ms,
            query.invisible_ms,
            offsets,
            self._config.options.broker_name,
        )

        def on_stored(stored: bool) -> None:
            if not stored and self._offsets.committed(query.group, topic, queue_id) > start:
                self._offsets.commit(query.group, topic, queue_id, start)

        put = self._appender.put(self.revive_message(checkpoint, popped.revive_queue), on_stored=on_stored)
        self._stats.events.add(REVIVE_IN, (query.group, topic, TYPE_CHECK_POINT, PUT_OK))
        self._stats.events.popped(query.group, topic, len(offsets))
        self._offsets.commit(query.group, topic, queue_id, got.next_offset, put.end)
        return put

    # ---- the start offset ----

    def start_offset(self, query: PopQuery, topic: str, queue_id: int) -> int:
        reset = self._offsets.take_reset(query.group, topic, queue_id)
        if reset is not None:
            self._order_info.clear(topic, query.group, queue_id)
            self._offsets.commit(query.group, topic, queue_id, reset)
            return reset
        committed = self._offsets.committed(query.group, topic, queue_id)
        if committed >= 0:
            return committed
        start = self._first_offset(query, topic, queue_id)
        self._offsets.commit(query.group, topic, queue_id, start)
        return start

    def _first_offset(self, query: PopQuery, topic: str, queue_id: int) -> int:
        """Where a group begins that never consumed the queue."""
        low = self._store.reader.min_offset(topic, queue_id)
        if query.from_start or topic.startswith(name_rules.RETRY_PREFIX):
            return low
        if self._config.options.pop_from_memory and low <= 0 and self._begins_in_memory(topic, queue_id):
            return 0
        return max(self._store.reader.max_offset(topic, queue_id) - 1, 0)

    def _begins_in_memory(self, topic: str, queue_id: int) -> bool:
        first = self._store.reader.entries(topic, queue_id, 0, 1)
        return bool(first) and self._store.reader.is_near_end(first[0].physical_offset)


def _record_bounds(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each record begins and ends."""
    at = 0
    while at < len(body):
        end = at + _SIZE.unpack_from(body, at)[0]
        yield at, end
        at = end


def _split(body: bytes) -> Iterator[bytes]:
    for at, end in _record_bounds(body):
        yield body[at:end]
