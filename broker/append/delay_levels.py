"""DelayService: delivers the messages of SCHEDULE_TOPIC_XXXX when they are due (ScheduleMessageService).

Each level is a queue sorted by delivery time, so a level waits for its first message only. A message due
later than its level's delay from now (the clock was set back) is due at once. Due messages are put in slices,
one in a write batch, so that other work runs between them; a level's offset moves after its slice is as
durable as the flush mode promises. Levels that messageDelayLevel had before and that still have messages are
delivered as well. Each delivery is noted in the journal before its record is written, so a
kill repeats none. What another broker delivered while this one was its slave is passed over. Loop thread.
"""

import asyncio
import heapq
import logging
from collections.abc import Iterator

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult, PutStatus, QueueEntry
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.delay_offsets import DelayOffsets

log = logging.getLogger("firearrow.delay_levels")

SLICE = 32
RETRY_S = 0.1
REMOVED_DELAY_MS = (1 << 63) - 1
"""A level that was removed: nothing shows that one of its messages is due later than it was to be."""
SLEEP_S_MAX = 1.0
"""Longest sleep: a wall clock that is set forward is noticed after this time."""


class DelayLevel:
    """`offset`: the next entry to deliver; `busy`: a slice is being written or synced."""

    __slots__ = ("busy", "delay_ms", "number", "offset", "timer")

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.offset = offset
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None


class DelayService:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        appender: Appender,
        journal: Journal,
        offsets: DelayOffsets,
        clock: Clock,
        stats: Stats,
        levels_ms: tuple[int, ...],
    ) -> None:
        self._loop = loop
        self._store = store
        self._appender = appender
        self._journal = journal
        self._offsets = offsets
        self._clock = clock
        self._stats = stats
        self._levels = [DelayLevel(number, delay_ms, 0) for number, delay_ms in enumerate(levels_ms, 1)]
        self._removed: list[DelayLevel] = []
        self._running = False
        self._followed: FollowedLog | None = None
        self._started_ms = 0
        self.passed_over = self.unsure = 0
        """Messages that another broker delivered; messages that it may have delivered, for they have no unique key."""

    def restore(self, name: str, number: int, value: int) -> None:
        """Apply the journal's offset of level `number`, which is newer than the file's."""
        self._offsets.set(number, value)

    def start(self, followed: FollowedLog | None = None) -> None:
        """`followed`: the log, if another broker may have delivered from it."""
        self._running = True
        self._followed, self._started_ms = followed, self._clock.now_ms()
        self._removed = self._removed_levels()
        for level in self._levels + self._removed:
            level.offset = self._next_offset(level.number)
            self._run(level)

    def stop(self) -> None:
        self._running = False
        for level in self._levels + self._removed:
            _disarm(level)

    def _next_offset(self, number: int) -> int:
        """The next offset to deliver of a level, within its queue."""
        low = self._store.reader.min_offset(name_rules.SCHEDULE_TOPIC, number - 1)
        high = self._store.reader.max_offset(name_rules.SCHEDULE_TOPIC, number - 1)
        return min(max(self._offsets.get(number), low), high)

    def _removed_levels(self) -> list[DelayLevel]:
        """Levels that messageDelayLevel no longer has, but that have messages. New messages use the others."""
        reader, topic = self._store.reader, name_rules.SCHEDULE_TOPIC
        numbers = sorted(queue_id + 1 for name, queue_id in reader.queues() if name == topic)
        removed = []
        for number in numbers:
            if number <= len(self._levels):
                continue
            waiting = reader.max_offset(topic, number - 1) - self._next_offset(number)
            if waiting > 0:
                log.info(
                    "%d messages wait in delay level %d, but messageDelayLevel has %d levels now: they are "
                    "delivered when they are due",
                    waiting,
                    number,
                    len(self._levels),
                )
                removed.append(DelayLevel(number, REMOVED_DELAY_MS, 0))
        return removed

    def messages_arrived(self, queues: set[tuple[str, int]]) -> None:
        for topic, queue_id in queues:
            if topic == name_rules.SCHEDULE_TOPIC and queue_id < len(self._levels):
                level = self._levels[queue_id]
                if level.timer is None:
                    self._run(level)

    def info(self) -> dict[str, str]:
        """For the runtime info: next offset and end of the queue of each level that was used."""
        return {
            f"scheduleMessageOffset_{level.number}": (
                f"{level.offset},{self._store.reader.max_offset(name_rules.SCHEDULE_TOPIC, level.number - 1)}"
            )
            for level in self._levels + self._removed
            if self._offsets.knows(level.number)
        }

    def waiting(self, from_ms: int) -> Iterator[tuple[int, QueueEntry]]:
        """Due time in ms and entry of each message that is due at `from_ms` or later, by due time."""
        return heapq.merge(
            *(self._waiting_in(level, from_ms) for level in self._levels + self._removed),
            key=lambda pair: pair[0],
        )

    def _waiting_in(self, level: DelayLevel, from_ms: int) -> Iterator[tuple[int, QueueEntry]]:
        reader, queue = self._store.reader, (name_rules.SCHEDULE_TOPIC, level.number - 1)
        at, high = max(level.offset, reader.min_offset(*queue)), reader.max_offset(*queue)
        low, end = at, high
        while low < end:  # a level is sorted by due time
            middle = (low + end) // 2
            entries = reader.entries(*queue, middle, 1)
            if entries and entries[0].tags_code < from_ms:
                low = middle + 1
            else:
                end = middle
        while entries := reader.entries(*queue, low, SLICE):
            yield from ((entry.tags_code, entry) for entry in entries)
            low += len(entries)

    def _run(self, level: DelayLevel) -> None:
        """Put a slice of due messages, or sleep until the next one is due."""
        _disarm(level)
        if level.busy or not self._running:
            return
        low = self._store.reader.min_offset(name_rules.SCHEDULE_TOPIC, level.number - 1)
        now, next_offset = self._clock.now_ms(), max(level.offset, low)
        last: PutResult | None = None
        for entry in self._store.reader.entries(
            name_rules.SCHEDULE_TOPIC, level.number - 1, next_offset, SLICE
        ):
            wait_ms = entry.tags_code - now
            if 0 < wait_ms <= level.delay_ms:
                if last is None:
                    self._move(level, next_offset)
                    self._arm(level, min(wait_ms / 1000, SLEEP_S_MAX))
                break
            try:
                last = self._deliver(level, entry, next_offset + 1) or last
            except PutRefused as error:
                log.info(
                    "a delayed message of level %d cannot be stored, will try again: %s", level.number, error
                )
                if last is None:
                    self._move(level, next_offset)
                    self._arm(level, RETRY_S)
                break
            next_offset += 1
        if last is not None:
            self._wait_for(level, last, next_offset)
        elif next_offset > level.offset:
            self._move(level, next_offset)
            self._arm(level, 0)

    def _deliver(self, level: DelayLevel, entry: QueueEntry, after: int) -> PutResult | None:
        """Put the message into its own topic; None if it has to be skipped. PutRefused: try again later."""
        data = self._store.reader.record_at(entry.physical_offset)
        record = None if data is None else decode(data, False)
        message = None if record is None else delivered(Message.of_record(record))
        if record is None or message is None or self._was_delivered(record, entry.tags_code):
            return None
        try:
            put = self._appender.put_due(message)
        except PutRefused as refused:
            if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
                raise
            log.error("a delayed message cannot be stored in %s and is skipped: %s", message.topic, refused)
            return None
        self._journal.note(Kind.DELAY, "", level.number, after, put.end)
        self._stats.put(message.topic, 1, put.end - put.physical_offset)
        return put

    def _was_delivered(self, record: Record, due_ms: int) -> bool:
        """Whether another broker did it, while this one was its slave."""
        followed = self._followed
        if followed is None or not followed.covers(record.physical_offset):
            return False
        if followed.has_copy(record):
            self.passed_over += 1
            if self.passed_over == 1:
                log.info("delayed messages that the former master has delivered are passed over")
            return True
        if Property.UNIQUE_KEY not in record.properties and due_ms <= self._started_ms:
            self.unsure += 1
            if self.unsure == 1:
                log.info(
                    "delayed messages without a unique key may be delivered a second time: "
                    "the former master may have delivered them"
                )
        return False

    def _wait_for(self, level: DelayLevel, last: PutResult, after: int) -> None:
        def stored(is_stored: bool) -> None:
            level.busy = False
            if is_stored:
                self._move(level, after)
                self._run(level)
            else:
                self._arm(level, RETRY_S)

        level.busy = True
        self._appender.on_durable(last.end, stored)

    def _move(self, level: DelayLevel, offset: int) -> None:
        if offset != level.offset or not self._offsets.knows(level.number):
            level.offset = offset
            self._offsets.set(level.number, offset)

    def _arm(self, level: DelayLevel, seconds: float) -> None:
        if self._running and level.timer is None:
            level.timer = self._loop.call_later(seconds, self._run, level)


def _disarm(level: DelayLevel) -> None:
    if level.timer is not None:
        level.timer.cancel()
        level.timer = None


def delivered(scheduled: Message) -> Message | None:
    """The message with its own topic and queue, otherwise unchanged, DELAY and REAL_* included; None if it
    names no topic, or that of half messages."""
    topic = scheduled.properties.get(Property.REAL_TOPIC)
    queue = scheduled.properties.get(Property.REAL_QUEUE_ID, "")
    if topic is None or not queue.isdecimal() or topic == name_rules.HALF_TOPIC:
        return None
    scheduled.topic, scheduled.queue_id = topic, int(queue)
    return scheduled
