"""Finds the pending messages of the timer from its queue, the commit log and the key index alone.

Used when the timer's own files are damaged, or those of a slave. A delivered message is recognized by its copy
in its real topic; without an index or a unique key it is not recognized and is delivered twice. Reads only. Loop
thread, at start.
"""

from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property
from firearrow.broker.timers.rules import parse_number

SLICE = 1000
COPIES_MAX = 32
"""At most this many messages of one key are compared."""
EVER_MS = 1 << 62


class TrustedCheckpoint(NamedTuple):
    """Messages before queue `offset` that were due before `read_ms` are delivered."""

    offset: int = 0
    read_ms: int = 0


class TimerRebuild:
    def __init__(self, store: MessageStore, trusted: TrustedCheckpoint, now_ms: int) -> None:
        self._store = store
        self._trusted = trusted
        self._now_ms = now_ms
        self.unsure = 0
        """Messages without a unique key that were due: they may have been delivered."""
        self._rolls: dict[tuple[str, str, str], int] = {}
        """(topic, unique key, due time) → how often the newest copy in the timer's queue was rolled."""
        at, end = (
            store.reader.min_offset(name_rules.TIMER_TOPIC, 0),
            store.reader.max_offset(name_rules.TIMER_TOPIC, 0),
        )
        while at < end:
            self._note_rolls(at)
            at += SLICE

    def waits(self, record: Record) -> bool:
        """Whether a message of the timer's queue is still to be delivered."""
        properties = record.properties
        out_ms = parse_number(properties.get(Property.TIMER_OUT_MS, ""))
        if out_ms is None or (record.queue_offset < self._trusted.offset and out_ms < self._trusted.read_ms):
            return False
        key = properties.get(Property.UNIQUE_KEY)
        if key is None:
            self.unsure += out_ms < self._now_ms
            return True
        rolls = parse_number(properties.get(Property.TIMER_ROLL_TIMES, "0")) or 0
        if self._rolls.get(_name(properties), 0) > rolls:
            return False
        return out_ms >= self._now_ms or not self._was_delivered(record, key, out_ms)

    def _note_rolls(self, offset: int) -> None:
        for entry in self._store.reader.entries(name_rules.TIMER_TOPIC, 0, offset, SLICE):
            data = self._store.reader.record_at(entry.physical_offset)
            if data is None or Property.TIMER_ROLL_TIMES.encode() not in data:
                continue
            properties = decode(data, False).properties
            rolls = parse_number(properties.get(Property.TIMER_ROLL_TIMES, "0")) or 0
            name = _name(properties)
            self._rolls[name] = max(self._rolls.get(name, 0), rolls)

    def _was_delivered(self, record: Record, key: str, out_ms: int) -> bool:
        topic = record.properties.get(Property.REAL_TOPIC)
        if topic is None or Property.TIMER_DELETE_KEY in record.properties:
            return False
        found, _, _ = self._store.reader.query(topic, key, COPIES_MAX, 0, EVER_MS)
        return any(
            copy.physical_offset > record.physical_offset
            and copy.topic == topic
            and copy.properties.get(Property.TIMER_OUT_MS) == str(out_ms)
            and copy.body == record.body
            for copy in (decode(data, False) for data in found)
        )


def _name(properties: dict[str, str]) -> tuple[str, str, str]:
    """What the copies of one timer message have in common: others may have the same unique key."""
    return (
        properties.get(Property.REAL_TOPIC, ""),
        properties.get(Property.UNIQUE_KEY, ""),
        properties.get(Property.TIMER_OUT_MS, ""),
    )
