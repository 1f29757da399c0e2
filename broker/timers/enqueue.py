"""Reads the timer's topic in order and puts each message into its slot. Loop thread.

A slice is one write of timer records to the log, then the slots, then the checkpoint. Messages whose slot was
delivered already are delivered at once, in a slice of their own; a progress record (one in a slot of the
past) then states in the log how far the queue was read, for the next process that opens the store, which may
be Apache's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record
from firearrow._native.store.log.timer_layout import RECORD_LAYOUT, ROUND, Slot
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult, QueueEntry
from firearrow.broker.base.message import Property
from firearrow.broker.timers.deliver import NEVER_WAITED_MS, TimerDelivery
from firearrow.broker.timers.log import DEFAULT, DELETE, ROLL, TimerRecord, topic_hash
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.recovery import linked
from firearrow.broker.timers.rules import parse_number
from firearrow.broker.timers.slice_loop import SliceLoop
from firearrow.broker.timers.timer_files import TimerFiles
from firearrow.broker.timers.wheel import BLANK_SLOTS

log = logging.getLogger("firearrow.timers")

SLICE = 256


class TimerMessage(NamedTuple):
    """A message of the timer's queue, when it was stored, the time of its slot; `properties` None: it is skipped."""

    entry: QueueEntry
    properties: dict[str, str] | None
    stored_ms: int = 0
    out_ms: int = 0


class TimerEnqueue(SliceLoop):
    """`enqueued()` is called when messages were enqueued, `changed()` when files have changed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        files: TimerFiles,
        delivery: TimerDelivery,
        metrics: TimerMetrics,
        *,
        roll_slots: int,
        enqueued: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(loop, "timer messages cannot be enqueued now; trying again")
        self._store = store
        self._files = files
        self._delivery = delivery
        self._metrics = metrics
        self._roll_slots = roll_slots if 2 <= roll_slots <= ROUND - BLANK_SLOTS else ROUND - BLANK_SLOTS
        self._enqueued = enqueued
        self._changed = changed
        self.linked: set[int] = set()
        """Physical offsets of messages that are in the timer log already, from recovery."""
        self.total = 0

    def _slice(self) -> None:
        self._files.check_clock()
        self._enqueue()

    def enqueue_waiting(self, waits: Callable[[Record], bool]) -> int:
        """Enqueue all messages of the queue for which `waits` is true; return how many. Raises OSError.

        Messages that are due already go into the current slot, so that recalls of them are still applied.
        """
        files, previous_total, last = self._files, self.total, None
        write_ms = files.write_ms()
        files.checkpoint.queue_offset = self._store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        while entries := self._store.reader.entries(
            name_rules.TIMER_TOPIC, 0, files.checkpoint.queue_offset, SLICE
        ):
            messages = [self._decode(entry) for entry in entries]
            messages = [
                each._replace(out_ms=max(each.out_ms, write_ms))
                if self._waits(each, waits)
                else TimerMessage(each.entry, None)
                for each in messages
            ]
            self._append(messages, files.checkpoint.queue_offset, write_ms)
            last = entries[-1]
        if last is not None:
            self._write_progress_record(last)
        return self.total - previous_total

    def _waits(self, message: TimerMessage, waits: Callable[[Record], bool]) -> bool:
        if message.properties is None:
            return False
        record = self._delivery.record(message.entry.physical_offset)
        return record is not None and waits(record)

    def _enqueue(self) -> None:
        checkpoint = self._files.checkpoint
        checkpoint.queue_offset = max(
            checkpoint.queue_offset, self._store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        )
        offset = checkpoint.queue_offset
        entries = self._store.reader.entries(name_rules.TIMER_TOPIC, 0, offset, SLICE)
        if not entries:
            return
        messages: list[TimerMessage] = []
        late = False
        for entry in entries:
            each = self._decode(entry)
            if each.properties is not None:
                now_late = each.out_ms < self._files.read_ms
                if messages and (messages[-1].properties is None or late != now_late):
                    break  # records keep the queue's order: a progress record follows skipped messages
                late = now_late
            messages.append(each)
        if late:
            self._deliver(messages, offset)
        else:
            self._append(messages, offset, self._files.write_ms())

    def _decode(self, entry: QueueEntry) -> TimerMessage:
        message = None
        if entry.physical_offset not in self.linked:
            message = self._delivery.message(entry.physical_offset)
        if message is None:
            return TimerMessage(entry, None)
        stored_ms, properties = message
        out_ms, step_ms = parse_number(properties.get(Property.TIMER_OUT_MS, "")), self._files.wheel.step_ms
        if out_ms is None:
            return TimerMessage(entry, None)
        return TimerMessage(entry, properties, stored_ms, out_ms // step_ms * step_ms)

    def _append(self, messages: list[TimerMessage], offset: int, write_ms: int) -> None:
        """Write messages to log and wheel, as many as fit into the log's file.

        Raises OSError: then none was written.
        """
        files = self._files
        has_records = any(each.properties is not None for each in messages)
        capacity = files.log.capacity(len(messages)) if has_records else len(messages)
        records: list[TimerRecord] = []
        slots: dict[int, Slot] = {}
        last_slot_ms = files.last_slot_ms()
        for entry, properties, _, out_ms in messages[:capacity]:
            if properties is not None:
                time_ms = slot_ms(out_ms, write_ms, self._roll_slots, files.wheel.step_ms)
                time_ms = min(time_ms, last_slot_ms)
                slot = slots.get(time_ms) or files.wheel.slot(time_ms)
                timer_record = record_of(
                    entry, properties, slot.last, time_ms, min(write_ms, time_ms), roll=time_ms != out_ms
                )
                slots[time_ms] = linked(slot, files.log.end + len(records) * RECORD_LAYOUT.size, timer_record)
                records.append(timer_record)
        for time_ms in slots:
            files.wheel.reserve(time_ms)
        if records:
            files.log.append(records)
        for slot in slots.values():
            files.wheel.put(slot)
        done = messages[:capacity]
        if done[-1].properties is None:  # the log's last record is of an older message
            self._write_progress_record(done[-1].entry)
        self._advance(offset, done)
        self.total += len(records)
        self._count(done)

    def _count(self, messages: list[TimerMessage]) -> None:
        delays: Counter[tuple[str, int]] = Counter()
        pending: Counter[str] = Counter()
        for _, properties, stored_ms, out_ms in messages:
            topic = None if properties is None else properties.get(Property.REAL_TOPIC)
            if properties is not None and topic:
                delays[topic, (out_ms - stored_ms) // 1000] += 1
                pending[topic] += -1 if Property.TIMER_DELETE_KEY in properties else 1
        for (topic, delay_s), count in delays.items():
            self._metrics.enqueued(topic, delay_s, count)
        for topic, count in pending.items():
            self._metrics.add(topic, count)

    def _deliver(self, messages: list[TimerMessage], offset: int) -> None:
        """Deliver messages that are due already. Raises PutRefused if not even the first can be put."""
        last: PutResult | None = None
        done = 0
        self._delivery.begin_slice()
        for entry, properties, _, _ in messages:
            record = None if properties is None else self._delivery.record(entry.physical_offset)
            try:
                put = None
                if record is not None and properties is not None:
                    put = self._delivery.put(record, properties, NEVER_WAITED_MS)
            except PutRefused:
                if last is None:
                    raise
                break
            last = put or last
            done += 1
        if last is None:
            return self._advance(offset, messages[:done])

        def stored() -> None:
            self.total += done
            self._write_progress_record(messages[done - 1].entry)
            self._advance(offset, messages[:done])

        self._when_stored(self._delivery.appender, last.end, stored)

    def _write_progress_record(self, entry: QueueEntry) -> None:
        """The slot for a message due at `out_ms`; one too far ahead gets the slot at which it is rolled."""
        files = self._files
        delay_ms = -ROUND * files.wheel.step_ms
        try:
            files.log.capacity(1)
            files.log.append(
                [TimerRecord(-1, DEFAULT, files.write_ms(), delay_ms, entry.physical_offset, entry.size, 0)]
            )
        except OSError as error:  # not fatal: the checkpoint states it as well
            log.warning("the timer's progress cannot be written to the timer log: %s", error)

    def _advance(self, offset: int, done: list[TimerMessage]) -> None:
        """Move the checkpoint past these messages, which begin at queue offset `offset`."""
        self.linked.difference_update(each.entry.physical_offset for each in done)
        self._files.checkpoint.queue_offset = offset + len(done)
        self._files.write_checkpoint()
        self._changed()
        if self._files.checkpoint.queue_offset < self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0):
            self._arm(0)
        self._enqueued()


def slot_ms(out_ms: int, write_ms: int, roll_slots: int, step_ms: int) -> int:
    """The slot for a message due at `out_ms`; if that is too far ahead, the slot at which it is rolled."""
    beyond_ms = out_ms - write_ms - roll_slots * step_ms
    if beyond_ms < 0:
        return out_ms
    slots = roll_slots
    if beyond_ms < slots // 3 * step_ms:  # enough time for the next roll
        slots //= 2
    return write_ms + slots * step_ms


def record_of(
    entry: QueueEntry, properties: dict[str, str], prev: int, time_ms: int, write_ms: int, *, roll: bool
) -> TimerRecord:
    magic = DEFAULT | (ROLL if roll else 0)
    if Property.TIMER_DELETE_KEY in properties:
        magic |= DELETE
    topic = properties.get(Property.REAL_TOPIC)
    hashed = 0 if topic is None else topic_hash(topic)
    return TimerRecord(prev, magic, write_ms, time_ms - write_ms, entry.physical_offset, entry.size, hashed)
