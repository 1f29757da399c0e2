"""Reconciles the timer's wheel, log and checkpoint at start, without reading the commit log, and checks them.

`Recovery` follows Apache's rules (TimerMessageStore.recover) and completes them: timer records that the wheel
lacks are linked into it, slots that refer to lost records are linked again, and messages that are in the
timer log are not enqueued a second time.

`TimerFileCheck` decides whether wheel, log and checkpoint can be what the last process left. It only reads.
It checks the format and the chain of each timer record, not the message that it refers to: dequeue does that.

Loop thread, at start.
"""

import logging

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import decode
from firearrow._native.store.log.timer_layout import RECORD_LAYOUT, ROUND, SLOTS, Slot
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.message import Property
from firearrow.broker.base.options import TIMER_STEPS_MS
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.log import TimerLog, TimerRecord
from firearrow.broker.timers.rules import parse_number
from firearrow.broker.timers.timer_files import TimerFiles
from firearrow.broker.timers.wheel import BLANK_SLOTS, TimerWheel

log = logging.getLogger("firearrow.timers")


class Recovery:
    """`linked`: physical offsets of messages from `queue_offset` on that are in the timer log already."""

    def __init__(
        self, store: MessageStore, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpoint
    ) -> None:
        self._store = store
        self._wheel = wheel
        self._log = timer_log
        self._checkpoint = checkpoint
        self.linked: set[int] = set()
        self.lost = 0
        """How many slots refer to lost records, not counting records before the log's start, which retention
        deletes.
        """

    def run(self, now_ms: int, unsure_ms: int) -> None:
        """Load the wheel with every slot that is not delivered. Raises OSError, StartError.

        `unsure_ms`: deliveries of this last span of time before a power cut may be lost.
        """
        checkpoint, wheel, step = self._checkpoint, self._wheel, self._wheel.step_ms
        self._check_step()
        if checkpoint.lost_power:
            checkpoint.read_ms -= unsure_ms
        oldest_ms = (now_ms // step - ROUND + BLANK_SLOTS) * step
        checkpoint.read_ms = checkpoint.read_ms // step * step
        if checkpoint.read_ms < oldest_ms and not self._reaches_all():
            checkpoint.read_ms = oldest_ms
        slots = wheel.load(checkpoint.read_ms)
        begin = self._begin()
        offset = self._enqueued_offset(unsure_ms if checkpoint.lost_power else 0)
        self._read_tail(begin, offset)
        self._repair(slots)
        if wheel.next(checkpoint.read_ms) is None:
            checkpoint.read_ms = max(checkpoint.read_ms, oldest_ms)
        checkpoint.queue_offset = self._clamped(self._after_tail(offset))

    def _reaches_all(self) -> bool:
        """Whether the wheel holds all filled slots from the checkpoint on, however long no broker ran.

        If not, the checkpoint is of another wheel, and we begin as far back as Apache's broker does.
        """
        end = self._checkpoint.read_ms // self._wheel.step_ms + SLOTS
        return all(slot.time < end for slot in self._wheel.used())

    def _check_step(self) -> None:
        """Raise StartError if pending slots were filled with another precision; one slot decides."""
        for slot in self._wheel.used():
            timer_record = self._log.read(slot.last)
            if timer_record is None or timer_record.time_ms < self._checkpoint.read_ms:
                continue
            steps = [step for step in TIMER_STEPS_MS if timer_record.time_ms // step == slot.time]
            if self._wheel.step_ms in steps:
                return
            if steps:
                raise StartError(
                    f"{self._store.root} has pending timer messages with timerPrecisionMs={steps[0]}: "
                    "start with that value until they are delivered"
                )

    def _begin(self) -> int:
        """The position up to which the wheel has all records of the log."""
        checkpoint, timer_log = self._checkpoint, self._log
        begin = checkpoint.flushed if checkpoint.is_ours else checkpoint.flushed - timer_log.file_bytes
        return timer_log.start if self._wheel.is_new else timer_log.boundary(begin)

    def _read_tail(self, begin: int, queue_offset: int) -> None:
        """Link the records that the wheel lacks, and truncate the log after its last valid record."""
        end, reach = begin, self._store.written
        first = self._store.reader.entries(name_rules.TIMER_TOPIC, 0, queue_offset, 1)
        enqueued_from = first[0].physical_offset if first else reach
        for position, timer_record in self._log.records(begin):
            if timer_record.physical_offset + timer_record.size > reach:
                break
            self._link(position, timer_record)
            if timer_record.physical_offset >= enqueued_from and not timer_record.is_progress:
                self.linked.add(timer_record.physical_offset)
            end = position + RECORD_LAYOUT.size
        self._log.truncate(end)

    def _repair(self, slots: list[Slot]) -> None:
        """Link slots again whose chain begins with a lost record or with another slot's."""
        lost = [slot for slot in slots if not self._refers_to_own(slot)]
        if not lost:
            return
        self.lost = sum(slot.last >= self._log.start for slot in lost)
        log.info("%d slots of the timer wheel refer to lost records and are linked again", len(lost))
        for slot in lost:
            self._wheel.clear(slot.time * self._wheel.step_ms)
        begin = min(slot.first for slot in lost)
        for position, timer_record in self._log.records(self._log.boundary(begin)):
            self._link(position, timer_record)

    def _refers_to_own(self, slot: Slot) -> bool:
        timer_record = self._log.read(slot.last)
        return timer_record is not None and timer_record.time_ms // self._wheel.step_ms == slot.time

    def _link(self, position: int, timer_record: TimerRecord) -> None:
        time, first = (
            timer_record.time_ms // self._wheel.step_ms,
            self._checkpoint.read_ms // self._wheel.step_ms,
        )
        if timer_record.is_progress or not first <= time < first + SLOTS:
            return
        slot = self._wheel.slot(timer_record.time_ms)
        if slot.last < position:
            self._wheel.reserve(timer_record.time_ms)
            self._wheel.put(linked(slot, position, timer_record))

    def _enqueued_offset(self, unsure_ms: int) -> int:
        """How far the queue was enqueued, by the checkpoint, without the messages of the last `unsure_ms`."""
        store, offset = self._store, self._clamped(self._checkpoint.queue_offset)
        if unsure_ms:
            low = store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
            newest = store.reader.max_offset(name_rules.TIMER_TOPIC, 0) - 1
            since_ms = store.reader.store_time(name_rules.TIMER_TOPIC, 0, newest) - unsure_ms
            while offset > low and store.reader.store_time(name_rules.TIMER_TOPIC, 0, offset - 1) >= since_ms:
                offset -= 1
        return offset

    def _after_tail(self, offset: int) -> int:
        """Correct the queue offset by the log, which may be older, or the only source, after a power cut."""
        after_last = self._after_last()
        if self._checkpoint.is_new:
            self.linked.clear()
            return after_last or 0
        return min(offset, after_last or 0) if self._checkpoint.lost_power else offset

    def _clamped(self, offset: int) -> int:
        low = self._store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        return min(max(offset, low), self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0))

    def _after_last(self) -> int | None:
        """The queue offset after that of the log's last record.

        None if there is no record, or its message no longer exists.
        """
        timer_record = self._log.last()
        data = None if timer_record is None else self._store.reader.record_at(timer_record.physical_offset)
        if data is None:
            return None
        record = decode(data, False)
        return record.queue_offset + 1 if record.topic == name_rules.TIMER_TOPIC else None


def linked(slot: Slot, position: int, timer_record: TimerRecord) -> Slot:
    """The slot with one more record, which becomes the head of its chain; a recall lowers its count."""
    time, first, _, waiting, magic = slot
    return Slot(time, position if first < 0 else first, position, waiting + timer_record.count_delta, magic)


LAG_MAX = 10_000
"""At most this many messages after the log's last record are checked."""


class TimerFileCheck:
    """Each method returns what is wrong, as the rest of a sentence about "the timer's files", or None."""

    def __init__(self, store: MessageStore, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def checkpoint_fault(self, now_ms: int) -> str | None:
        """Check the checkpoint, before recovery."""
        checkpoint, end = self._files.checkpoint, self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0)
        if checkpoint.is_suspect:
            return "lacked messages when the broker stopped"
        if checkpoint.is_followed:
            return "are those of a slave, which does not keep them"
        if checkpoint.truncated:
            return "have a truncated checkpoint"
        if checkpoint.is_new:
            return "have no checkpoint" if end else None
        if checkpoint.read_ms < 0 or (
            not checkpoint.is_ours and checkpoint.read_ms > now_ms + self._files.wheel.step_ms
        ):
            return f"have a checkpoint at {checkpoint.read_ms}, but the time is {now_ms}"
        if checkpoint.queue_offset < 0 or (checkpoint.queue_offset > end and not checkpoint.lost_power):
            return f"have a checkpoint at queue offset {checkpoint.queue_offset}, but the queue ends at {end}"
        return None

    def log_fault(self) -> str | None:
        """Check the log, before recovery, up to where it was durable."""
        checkpoint, timer_log = self._files.checkpoint, self._files.log
        known_end = timer_log.last_end(checkpoint.flushed)
        if known_end is None:
            return f"were flushed up to {checkpoint.flushed} of the timer log, where no record ends"
        end = timer_log.survey(self._files.wheel.step_ms, checkpoint.read_ms).end
        return f"have no valid record at {end} of the timer log" if end < known_end else None

    def chain_fault(self) -> str | None:
        """Check, after recovery, that each slot refers to its last record and that no message is missing."""
        checkpoint, wheel, timer_log = self._files.checkpoint, self._files.wheel, self._files.log
        survey = timer_log.survey(wheel.step_ms, checkpoint.read_ms)
        if survey.odd >= 0:
            return f"have a record at {survey.odd} of the timer log with a wrong predecessor or out of order"
        reach = checkpoint.read_ms // wheel.step_ms + SLOTS
        for time, position in survey.heads.items():
            if time < reach and wheel.last(time) not in (position, -1):
                return f"have a wheel that does not refer to the record at {position} of the timer log"
        return self._missing_fault() if checkpoint.is_ours and not checkpoint.lost_power else None

    def _missing_fault(self) -> str | None:
        """Find a message before the checkpoint that is not in the log, after the log's last record."""
        store, offset = self._store, self._files.checkpoint.queue_offset
        last = self._files.log.last()
        begin = store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        if last is not None:
            data = store.reader.record_at(last.physical_offset)
            record = None if data is None else decode(data, False)
            if record is None or record.topic != name_rules.TIMER_TOPIC:
                return None
            begin = record.queue_offset + 1
        for entry in store.reader.entries(name_rules.TIMER_TOPIC, 0, begin, min(offset - begin, LAG_MAX)):
            data = store.reader.record_at(entry.physical_offset)
            if (
                data is not None
                and parse_number(decode(data, False).properties.get(Property.TIMER_OUT_MS, "")) is not None
            ):
                return f"lack the message at physical offset {entry.physical_offset}"
        return None
