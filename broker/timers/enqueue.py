"""Intake: takes the messages of the timer's topic, in their order, and lays each into its slot. Loop thread.

A slice is one write of units to the log, then the slots, then the check point. What belongs in a slot that was fired is
delivered at once, a slice of such messages on its own; a unit in a slot of the past then marks in the log how far the
timer came, for whoever opens the store next.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.base.hash import java_hash
from firearrow._native.store.log.record import Record
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult, QueueEntry
from firearrow.broker.base.message import Property
from firearrow.broker.tables import name_rules
from firearrow.broker.timers.deliver import NEVER_WAITED_MS, TimerDelivery
from firearrow.broker.timers.log import DEFAULT, DELETE, RECORD_LAYOUT, ROLL, TimerRecord
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.recovery import linked
from firearrow.broker.timers.rules import whole
from firearrow.broker.timers.slice_loop import SliceLoop
from firearrow.broker.timers.timer_files import TimerFiles
from firearrow.broker.timers.wheel import BLANK_SLOTS, ROUND, Slot

log = logging.getLogger("firearrow.timers")

SLICE = 64


class TimerMessage(NamedTuple):
    """A message of the queue, and the slot in which it is due; `record` None: to be passed over."""

    entry: QueueEntry
    record: Record | None
    out_ms: int


class TimerEnqueue(SliceLoop):
    """`moved()` is called when messages were taken, `changed()` when files have changed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        files: TimerFiles,
        delivery: TimerDelivery,
        metrics: TimerMetrics,
        *,
        roll_slots: int,
        moved: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(loop, "timer messages cannot be taken up now")
        self._store = store
        self._files = files
        self._delivery = delivery
        self._metrics = metrics
        self._roll_slots = roll_slots if 2 <= roll_slots <= ROUND - BLANK_SLOTS else ROUND - BLANK_SLOTS
        self._moved = moved
        self._changed = changed
        self.linked: set[int] = set()
        """Physical offsets of messages that lie in the log already (recovery)."""
        self.total = 0

    def _slice(self) -> None:
        self._files.check_clock()
        self._take()

    def enqueue_waiting(self, waits: Callable[[Record], bool]) -> int:
        """Lay all of the queue that waits, as `waits` says, at once; how many. What is due already comes with the slot
        of now, so that what recalls it is heard. OSError."""
        files, before, last = self._files, self.total, None
        write_ms = files.write_ms()
        files.checkpoint.queue_offset = self._store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        while entries := self._store.reader.entries(
            name_rules.TIMER_TOPIC, 0, files.checkpoint.queue_offset, SLICE
        ):
            messages = [self._opened(entry) for entry in entries]
            messages = [
                TimerMessage(
                    entry, record if record is not None and waits(record) else None, max(out_ms, write_ms)
                )
                for entry, record, out_ms in messages
            ]
            self._append(messages, files.checkpoint.queue_offset, write_ms)
            last = entries[-1]
        if last is not None:
            self._mark(last)
        return self.total - before

    def _take(self) -> None:
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
            each = self._opened(entry)
            if each.record is not None:
                now_late = each.out_ms < self._files.read_ms
                if messages and (messages[-1].record is None or late != now_late):
                    break  # behind what is passed over a mark: units stand in the order of the queue
                late = now_late
            messages.append(each)
        if late:
            self._deliver(messages, offset)
        else:
            self._append(messages, offset, self._files.write_ms())

    def _opened(self, entry: QueueEntry) -> TimerMessage:
        if entry.physical_offset in self.linked:
            return TimerMessage(entry, None, 0)
        record = self._delivery.record(entry.physical_offset)
        out_ms = None if record is None else whole(record.properties.get(Property.TIMER_OUT_MS, ""))
        if out_ms is None:
            return TimerMessage(entry, None, 0)
        return TimerMessage(entry, record, out_ms // self._files.wheel.step_ms * self._files.wheel.step_ms)

    def _append(self, messages: list[TimerMessage], offset: int, write_ms: int) -> None:
        """Into log and wheel; as many as fit into the log's file. OSError: none was."""
        files = self._files
        lays = any(each.record is not None for each in messages)
        capacity = files.log.capacity(len(messages)) if lays else len(messages)
        records: list[TimerRecord] = []
        slots: dict[int, Slot] = {}
        for entry, record, out_ms in messages[:capacity]:
            if record is not None:
                time_ms = slot_ms(out_ms, write_ms, self._roll_slots, files.wheel.step_ms)
                time_ms = min(time_ms, files.last_slot_ms())
                slot = slots.get(time_ms) or files.wheel.slot(time_ms)
                timer_record = record_of(
                    entry, record, slot.last, time_ms, min(write_ms, time_ms), roll=time_ms != out_ms
                )
                slots[time_ms] = linked(slot, files.log.end + len(records) * RECORD_LAYOUT.size, timer_record)
                records.append(timer_record)
        for time_ms in slots:
            files.wheel.reserve(time_ms)
        if records:
            files.log.append(records)
        for slot in slots.values():
            files.wheel.put(slot)
        passed = messages[:capacity]
        if passed[-1].record is None:  # the log's last unit is an older message's
            self._mark(passed[-1].entry)
        self._went_on(offset, passed)
        self.total += len(records)
        for _, record, _ in passed:
            if record is not None:
                deletes = Property.TIMER_DELETE_KEY in record.properties
                self._metrics.add(record.properties.get(Property.REAL_TOPIC), -1 if deletes else 1)

    def _deliver(self, messages: list[TimerMessage], offset: int) -> None:
        """What is due already. PutRefused: the first cannot be put."""
        last: PutResult | None = None
        done = 0
        for _, record, _ in messages:
            try:
                placed = None if record is None else self._delivery.put(record, NEVER_WAITED_MS)
            except PutRefused:
                if last is None:
                    raise
                break
            last = placed or last
            done += 1
        if last is None:
            return self._went_on(offset, messages[:done])

        def stored() -> None:
            self.total += done
            self._mark(messages[done - 1].entry)
            self._went_on(offset, messages[:done])

        self._when_stored(self._delivery.appender, last.end, stored)

    def _mark(self, entry: QueueEntry) -> None:
        """Say in the log that the queue was taken up to here; the slot is one that nobody fires or fills."""
        files = self._files
        delay_ms = -ROUND * files.wheel.step_ms
        try:
            files.log.capacity(1)
            files.log.append(
                [TimerRecord(-1, DEFAULT, files.write_ms(), delay_ms, entry.physical_offset, entry.size, 0)]
            )
        except OSError as error:  # the check point says it, too
            log.warning("the timer log takes no mark: %s", error)

    def _went_on(self, offset: int, passed: list[TimerMessage]) -> None:
        """From `offset` of the queue on these are done with."""
        self.linked.difference_update(each.entry.physical_offset for each in passed)
        self._files.checkpoint.queue_offset = offset + len(passed)
        self._files.write_checkpoint()
        self._changed()
        self._arm(0)
        self._moved()


def slot_ms(out_ms: int, write_ms: int, roll_slots: int, step_ms: int) -> int:
    """The slot for a message due at `out_ms`; of one that is too far ahead, where it is laid anew."""
    beyond_ms = out_ms - write_ms - roll_slots * step_ms
    if beyond_ms < 0:
        return out_ms
    slots = roll_slots
    if beyond_ms < slots // 3 * step_ms:  # enough time for the next roll
        slots //= 2
    return write_ms + slots * step_ms


def record_of(
    entry: QueueEntry, record: Record, prev: int, time_ms: int, write_ms: int, *, roll: bool
) -> TimerRecord:
    magic = DEFAULT | (ROLL if roll else 0)
    if Property.TIMER_DELETE_KEY in record.properties:
        magic |= DELETE
    topic = record.properties.get(Property.REAL_TOPIC)
    topic_hash = 0 if topic is None else java_hash(topic)
    return TimerRecord(
        prev, magic, write_ms, time_ms - write_ms, entry.physical_offset, entry.size, topic_hash
    )
