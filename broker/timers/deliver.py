"""Delivery: a message of the timer's topic on its way out: to its own topic, or, far ahead, into the timer once more.

Each is noted in the journal by the physical offset it had, before its record is written: a kill repeats none.
Loop thread.
"""

import logging

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult, PutStatus
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables import name_rules
from firearrow.broker.timers.rules import whole

log = logging.getLogger("firearrow.timers")

MARKS = (Property.TIMER_ENQUEUE_MS, Property.TIMER_DEQUEUE_MS, Property.TIMER_ROLL_TIMES)
NEVER_WAITED_MS = (1 << 63) - 1
"""Time of enqueueing of a message that was due when it came."""
NOT_REAL = frozenset(
    (name_rules.TIMER_TOPIC, name_rules.SCHEDULE_TOPIC, name_rules.HALF_TOPIC, name_rules.OP_HALF_TOPIC)
)
"""Topics that a message cannot come out to: it would run in a circle."""


class TimerDelivery:
    """`delivered`: physical offsets of messages that were delivered before the start (the journal's)."""

    def __init__(
        self, store: MessageStore, appender: Appender, journal: Journal, clock: Clock, stats: Stats
    ) -> None:
        self.appender = appender
        self.delivered: set[int] = set()
        self._store = store
        self._journal = journal
        self._clock = clock
        self._stats = stats

    def record(self, physical_offset: int) -> Record | None:
        """The timer's message there that is still to be delivered."""
        if physical_offset in self.delivered:
            return None
        data = self._store.reader.record_at(physical_offset)
        record = None if data is None else decode(data, False)
        return record if record is not None and record.topic == name_rules.TIMER_TOPIC else None

    def names_none(self, physical_offset: int) -> bool:
        """No timer message is there, and none was deleted with the log's oldest files: whoever names it is damaged."""
        if physical_offset in self.delivered or physical_offset < self._store.min_physical:
            return False
        return self.record(physical_offset) is None

    def put(self, record: Record, enqueue_ms: int, *, roll: bool = False) -> PutResult | None:
        """Stage what comes out; None if it is to be passed over. PutRefused: not now."""
        message = delivered_message(record, enqueue_ms, self._clock.now_ms(), roll=roll)
        if message is None:
            return None
        placed = self._staged(message)
        if placed is not None:
            self._journal.note(Kind.TIMER, "", 0, record.physical_offset, placed.end)
            self._stats.put(message.topic, 1, placed.end - placed.physical_offset)
        return placed

    def _staged(self, message: Message) -> PutResult | None:
        try:
            try:
                return self.appender.put(message, hooks=False)
            except PutRefused as refused:
                if refused.status != PutStatus.PROPERTIES_SIZE_EXCEEDED:
                    raise
            for name in MARKS:  # it fitted when it was sent
                message.properties.pop(name, None)
            return self.appender.put(message, hooks=False)
        except PutRefused as refused:
            if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
                raise
            log.error("a timer message cannot be stored in %s, it is passed over: %s", message.topic, refused)
            return None


def delivered_message(record: Record, enqueue_ms: int, now_ms: int, *, roll: bool) -> Message | None:
    """The message as it goes on: with all its properties, REAL_* too, as Apache stores it. None if it only deletes
    another, or names no topic."""
    message = Message.of_record(record)
    properties = message.properties
    properties[Property.TIMER_ENQUEUE_MS] = str(enqueue_ms)
    properties[Property.TIMER_DEQUEUE_MS] = str(now_ms)
    if roll:
        times = whole(properties.get(Property.TIMER_ROLL_TIMES, "0")) or 0
        properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
        return message
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = whole(properties.get(Property.REAL_QUEUE_ID, ""))
    if Property.TIMER_DELETE_KEY in properties or topic is None or topic in NOT_REAL or queue_id is None:
        return None
    message.topic, message.queue_id = topic, queue_id
    return message
