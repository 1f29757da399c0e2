"""Popped messages that are not acknowledged yet, of one group. Loop thread, in slices.

They are in the check points that wait in the timer or in the revive topic, less the acknowledgements that wait
there, and in ConsumerOrderInfo for messages that were popped in order.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property
from firearrow.broker.pop.checkpoints import ACK, BATCH_ACK, CHECK_POINT, AckMessage, Key, PopCheckPoint
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.receipt_handles import normal_topic
from firearrow.broker.pop.revive import ReviveService

WaitingTimers = Callable[[], Iterable[tuple[int, int]]]
"""Of each pending timer message, by due time: its slot in ms, and its physical offset, -1 if it is not POP's."""


class InFlightMessage(NamedTuple):
    topic: str
    group: str
    queue_id: int
    offset: int
    pop_ms: int
    visible_ms: int


class InFlight:
    """`scan()` yields once for each entry that was read, so that the caller can stop or pause; then `messages`
    returns what was found so far."""

    def __init__(
        self,
        store: MessageStore,
        orders: ConsumerOrderInfo,
        revive: ReviveService,
        timers: WaitingTimers,
        group: str,
        topic: str,
    ) -> None:
        self._store = store
        self._orders = orders
        self._revive = revive
        self._timers = timers
        self._group, self._topic = group, topic
        self._checkpoints: dict[Key, PopCheckPoint] = {}
        self._acked: dict[Key, set[int]] = {}
        self._read_until_ms = 0
        self._whole = False

    def scan(self) -> Iterator[None]:
        for checkpoint in self._revive.waiting_checkpoints():
            if self._is_wanted(checkpoint.topic, checkpoint.group):
                self._checkpoints[checkpoint.key] = replace(checkpoint)
            yield
        for physical_offset in self._revive.unread():
            self._add(physical_offset)
            yield
        for slot_ms, physical_offset in self._timers():
            self._read_until_ms = slot_ms
            if physical_offset >= 0:
                self._add(physical_offset)
            yield
        self._whole = True

    def messages(self) -> tuple[list[InFlightMessage], bool]:
        """The messages, first those that are visible again first, and whether there may be more: check points
        whose acknowledgements were not reached are left out."""
        found: list[InFlightMessage] = []
        for key, checkpoint in self._checkpoints.items():
            if not self._whole and checkpoint.revive_ms >= self._read_until_ms:
                continue
            for offset in self._acked.get(key, ()):
                checkpoint.ack(offset)
            found += [
                InFlightMessage(*key[:3], offset, checkpoint.pop_ms, checkpoint.revive_ms)
                for index, offset in enumerate(checkpoint.offsets)
                if not checkpoint.acked >> index & 1
            ]
        for topic, queue_id, order in self._orders.of(self._group):
            if self._is_wanted(topic, self._group):
                found += [
                    InFlightMessage(
                        topic, self._group, queue_id, offset, order.pop_ms, order.visible_ms(offset)
                    )
                    for offset in order.unacked()
                ]
        return sorted(found, key=lambda each: (each.visible_ms, each)), not self._whole

    def _is_wanted(self, topic: str, group: str) -> bool:
        if group != self._group:
            return False
        return not self._topic or self._topic in (topic, normal_topic(topic, group))

    def _add(self, physical_offset: int) -> None:
        raw = self._store.reader.record_at(physical_offset)
        record = None if raw is None else decode(raw, False)
        if record is None:
            return
        try:
            self._add_record(record)
        except ValueError:
            return  # the revive service logs it

    def _add_record(self, record: Record) -> None:
        """ValueError: it cannot be decoded."""
        tag = record.properties.get(Property.TAGS)
        if tag == CHECK_POINT:
            checkpoint = PopCheckPoint.of(record.body)
            if self._is_wanted(checkpoint.topic, checkpoint.group):
                self._checkpoints.setdefault(checkpoint.key, checkpoint)
        elif tag in (ACK, BATCH_ACK):
            acks = AckMessage.of(record.body, self._revive.broker_name)
            if acks.group == self._group:
                self._acked.setdefault(acks.key, set()).update(acks.offsets)
