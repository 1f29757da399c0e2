"""Stages a message that leaves the timer's topic: to its own topic or, if due far ahead, into the timer
again.

The progress journal records each delivery by the old physical offset before the new record is written, so
that a kill repeats none. Loop thread.
"""

import logging

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult, PutStatus
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.message import Message, Property, properties_text
from firearrow.broker.base.stats import Stats
from firearrow.broker.timers.rules import parse_number

log = logging.getLogger("firearrow.timers")

TIMER_PROPERTIES = (Property.TIMER_ENQUEUE_MS, Property.TIMER_DEQUEUE_MS, Property.TIMER_ROLL_TIMES)
NEVER_WAITED_MS = (1 << 63) - 1
"""Enqueue time of a message that was already due when it arrived."""
ADDED = properties_text({Property.TIMER_ENQUEUE_MS: "%d", Property.TIMER_DEQUEUE_MS: "%d"})
REAL = f"\x02{Property.REAL_TOPIC}\x01".encode()
NOT_ALIKE = tuple(
    f"{name}\x01".encode()
    for name in (
        *TIMER_PROPERTIES,
        Property.TIMER_DELETE_KEY,
        Property.MULTI_DISPATCH,
        Property.MULTI_QUEUE_OFFSET,
    )
)
"""How properties begin for which a delivery does more than add its times."""
UNDELIVERABLE_TOPICS = frozenset(
    (name_rules.TIMER_TOPIC, name_rules.SCHEDULE_TOPIC, name_rules.HALF_TOPIC, name_rules.OP_HALF_TOPIC)
)
"""Topics to which no message is delivered: it would come back to the timer for ever."""


class TimerDelivery:
    """`delivered`: physical offsets of messages delivered before the start, from the progress journal."""

    def __init__(
        self, store: MessageStore, appender: Appender, journal: Journal, clock: Clock, stats: Stats
    ) -> None:
        self.appender = appender
        self.delivered: set[int] = set()
        self._store = store
        self._journal = journal
        self._clock = clock
        self._stats = stats
        self._targets: dict[bytes, tuple[str, int]] = {}

    def begin_slice(self) -> None:
        """Topics may have changed since the last one."""
        self._targets.clear()

    def put_alike(self, physical_offset: int, enqueue_ms: int) -> tuple[str, int] | None:
        """As `put`, for a message that is not rolled and goes where one of this slice went: its topic, and the end
        of the log. None: `put` is needed. Raises PutRefused: try again later."""
        if not self._targets or physical_offset in self.delivered:
            return None
        added = ADDED % (enqueue_ms, self._clock.now_ms())
        try:
            put = self.appender.put_again(physical_offset, self._targets, REAL, NOT_ALIKE, added)
        except PutRefused as refused:
            if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
                raise
            return None
        if put is None:
            return None
        topic, end, size = put
        self._count(physical_offset, topic, end, size)
        return topic, end

    def _count(self, physical_offset: int, topic: str, end: int, size: int) -> None:
        self._journal.note(Kind.TIMER, "", 0, physical_offset, end)
        self._stats.put(topic, 1, size)

    def record(self, physical_offset: int) -> Record | None:
        """The undelivered timer message at this physical offset; None if there is none."""
        if physical_offset in self.delivered:
            return None
        # the wheel of a slave that was promoted has messages that are not confirmed yet
        data = self._store.reader.record_at(physical_offset, unconfirmed=True)
        record = None if data is None else decode(data, False)
        return record if record is not None and record.topic == name_rules.TIMER_TOPIC else None

    def message(self, physical_offset: int) -> tuple[int, dict[str, str]] | None:
        """Store time and properties of the message that `record` returns."""
        if physical_offset in self.delivered:
            return None
        found = self._store.reader.message_at(physical_offset, unconfirmed=True)
        if found is None or found[0] != name_rules.TIMER_TOPIC:
            return None
        _, stored_ms, properties, _ = found
        return stored_ms, properties

    def is_dangling(self, physical_offset: int) -> bool:
        """Whether no timer message is or was there: then the timer record that refers to it is damaged.

        Delivered messages, and those deleted by retention, do not count.
        """
        if physical_offset in self.delivered or physical_offset < self._store.min_physical:
            return False
        return self.record(physical_offset) is None

    def put(
        self, record: Record, properties: dict[str, str], enqueue_ms: int, *, roll: bool = False
    ) -> PutResult | None:
        """Stage the delivery; None if the message is to be skipped. `properties`: of the record; the delivery changes
        them. Raises PutRefused: try again later."""
        message = delivered_message(record, properties, enqueue_ms, self._clock.now_ms(), roll=roll)
        if message is None:
            return None
        target = message.topic, message.queue_id
        put = self._stage(message)
        if put is not None:
            self._count(record.physical_offset, message.topic, put.end, put.end - put.physical_offset)
        if target == (message.topic, message.queue_id) and not roll:
            names = {Property.REAL_TOPIC: target[0], Property.REAL_QUEUE_ID: str(target[1])}
            self._targets[b"\x02" + properties_text(names)] = target
        return put

    def _stage(self, message: Message) -> PutResult | None:
        try:
            try:
                return self.appender.put_due(message)
            except PutRefused as refused:
                if refused.status != PutStatus.PROPERTIES_SIZE_EXCEEDED:
                    raise
            for name in TIMER_PROPERTIES:  # without them it fits, as it did when it was sent
                message.properties.pop(name, None)
            return self.appender.put_due(message)
        except PutRefused as refused:
            if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
                raise
            log.error(
                "a timer message cannot be stored in topic %s and is dropped: %s", message.topic, refused
            )
            return None


def delivered_message(
    record: Record, properties: dict[str, str], enqueue_ms: int, now_ms: int, *, roll: bool
) -> Message | None:
    """Build the message to deliver, with all its properties, also REAL_*, as Apache stores it.

    None if it only recalls another message, or has no valid topic or queue.
    """
    message = Message.of_record(record, properties)
    properties[Property.TIMER_ENQUEUE_MS] = str(enqueue_ms)
    properties[Property.TIMER_DEQUEUE_MS] = str(now_ms)
    if roll:
        times = parse_number(properties.get(Property.TIMER_ROLL_TIMES, "0")) or 0
        properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
        return message
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = parse_number(properties.get(Property.REAL_QUEUE_ID, ""))
    if (
        Property.TIMER_DELETE_KEY in properties
        or topic is None
        or topic in UNDELIVERABLE_TOPICS
        or queue_id is None
    ):
        return None
    message.topic, message.queue_id = topic, queue_id
    return message
