"""Recovery of the timer at start: wheel, log and check point brought together again, without a look at the commit log.

Apache's rules (TimerMessageStore.recover), made whole: units that the wheel had not taken up are linked into it, slots
that name lost units are linked anew, and what lies in the log is not taken up from the timer's queue a second time.
Loop thread, at start.

Soundness: whether wheel, log and check point of the timer can be what the last run left. Reads only; loop thread,
at start.

A unit is checked for its form and its chain, not for the record it names: firing notices that.
"""

import logging

from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.message import Property
from firearrow.broker.base.options import TIMER_STEPS_MS
from firearrow.broker.tables import name_rules
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.log import RECORD_LAYOUT, TimerLog, TimerRecord
from firearrow.broker.timers.rules import whole
from firearrow.broker.timers.timer_files import TimerFiles
from firearrow.broker.timers.wheel import BLANK_SLOTS, ROUND, SLOTS, Slot, TimerWheel

log = logging.getLogger("firearrow.timers")


class Recovery:
    """`linked`: physical offsets of messages behind `queue_offset` of the timer's queue that are in the log already."""

    def __init__(
        self, store: MessageStore, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpoint
    ) -> None:
        self._store = store
        self._wheel = wheel
        self._log = timer_log
        self._checkpoint = checkpoint
        self.linked: set[int] = set()
        self.lost = 0
        """How many slots named units that are not in the log, though it has not been cut at its front."""

    def run(self, now_ms: int, unsure_ms: int) -> None:
        """Afterwards the wheel waits with every slot that is not fired. `unsure_ms`: what fired so shortly before the
        machine stopped may be lost. OSError, StartError."""
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
        offset = self._taken(unsure_ms if checkpoint.lost_power else 0)
        self._read_tail(begin, offset)
        self._repair(slots)
        if wheel.next(checkpoint.read_ms) is None:
            checkpoint.read_ms = max(checkpoint.read_ms, oldest_ms)
        checkpoint.queue_offset = self._clamped(self._after_tail(offset))

    def _reaches_all(self) -> bool:
        """However long nobody ran: from the check point on the wheel holds every slot that was filled. If it does not,
        the check point is none of it, and we begin as far back as Apache's broker does."""
        end = self._checkpoint.read_ms // self._wheel.step_ms + SLOTS
        return all(slot.time < end for slot in self._wheel.used())

    def _check_step(self) -> None:
        """Slots that wait were filled with the precision of now; one that does tells for all."""
        for slot in self._wheel.used():
            timer_record = self._log.read(slot.last)
            if timer_record is None or timer_record.time_ms < self._checkpoint.read_ms:
                continue
            steps = [step for step in TIMER_STEPS_MS if timer_record.time_ms // step == slot.time]
            if self._wheel.step_ms in steps:
                return
            if steps:
                raise StartError(
                    f"timer messages wait in {self._store.root} with timerPrecisionMs={steps[0]}: start with that "
                    "until they are delivered"
                )

    def _begin(self) -> int:
        """Up to here the wheel has all that the log has."""
        checkpoint, timer_log = self._checkpoint, self._log
        begin = checkpoint.flushed if checkpoint.is_ours else checkpoint.flushed - timer_log.file_bytes
        return timer_log.start if self._wheel.is_new else timer_log.boundary(begin)

    def _read_tail(self, begin: int, queue_offset: int) -> None:
        """Link what the wheel lacks, and cut the log behind its last good unit."""
        end, reach = begin, self._store.written
        first = self._store.reader.entries(name_rules.TIMER_TOPIC, 0, queue_offset, 1)
        taken_from = first[0].physical_offset if first else reach
        for position, timer_record in self._log.records(begin):
            if timer_record.physical_offset + timer_record.size > reach:
                break
            self._link(position, timer_record)
            if timer_record.physical_offset >= taken_from and not timer_record.is_mark:
                self.linked.add(timer_record.physical_offset)
            end = position + RECORD_LAYOUT.size
        self._log.cut(end)

    def _repair(self, slots: list[Slot]) -> None:
        """Slots whose chain begins with a unit that is lost, or another's, are linked anew."""
        lost = [slot for slot in slots if not self._names_own(slot)]
        if not lost:
            return
        self.lost = sum(slot.last >= self._log.start for slot in lost)
        log.warning("%d slots of the timer wheel named lost units and are linked anew", len(lost))
        for slot in lost:
            self._wheel.clear(slot.time * self._wheel.step_ms)
        begin = min(slot.first for slot in lost)
        for position, timer_record in self._log.records(self._log.boundary(begin)):
            self._link(position, timer_record)

    def _names_own(self, slot: Slot) -> bool:
        timer_record = self._log.read(slot.last)
        return timer_record is not None and timer_record.time_ms // self._wheel.step_ms == slot.time

    def _link(self, position: int, timer_record: TimerRecord) -> None:
        time, first = (
            timer_record.time_ms // self._wheel.step_ms,
            self._checkpoint.read_ms // self._wheel.step_ms,
        )
        if timer_record.is_mark or not first <= time < first + SLOTS:
            return
        slot = self._wheel.slot(timer_record.time_ms)
        if slot.last < position:
            self._wheel.reserve(timer_record.time_ms)
            self._wheel.put(linked(slot, position, timer_record))

    def _taken(self, unsure_ms: int) -> int:
        """How far the timer's queue was taken, as the check point says; not the messages of the last `unsure_ms`."""
        store, offset = self._store, self._clamped(self._checkpoint.queue_offset)
        if unsure_ms:
            low = store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
            newest = store.reader.max_offset(name_rules.TIMER_TOPIC, 0) - 1
            since_ms = store.reader.store_time(name_rules.TIMER_TOPIC, 0, newest) - unsure_ms
            while offset > low and store.reader.store_time(name_rules.TIMER_TOPIC, 0, offset - 1) >= since_ms:
                offset -= 1
        return offset

    def _after_tail(self, offset: int) -> int:
        """The log lags behind when the machine stopped; it speaks alone when the check point was lost."""
        after_last = self._after_last()
        if self._checkpoint.is_new:
            self.linked.clear()
            return after_last or 0
        return min(offset, after_last or 0) if self._checkpoint.lost_power else offset

    def _clamped(self, offset: int) -> int:
        low = self._store.reader.min_offset(name_rules.TIMER_TOPIC, 0)
        return min(max(offset, low), self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0))

    def _after_last(self) -> int | None:
        """Queue offset behind that of the log's last unit; None if there is none, or its message is gone."""
        timer_record = self._log.last()
        data = None if timer_record is None else self._store.reader.record_at(timer_record.physical_offset)
        if data is None:
            return None
        record = decode(data, False)
        return record.queue_offset + 1 if record.topic == name_rules.TIMER_TOPIC else None


def linked(slot: Slot, position: int, timer_record: TimerRecord) -> Slot:
    """The slot with one more unit, which becomes the head of its chain; a unit that deletes counts against it."""
    return slot._replace(
        first=position if slot.first < 0 else slot.first,
        last=position,
        waiting=slot.waiting + timer_record.count_delta,
    )


LAG_MAX = 10_000
"""So many messages behind the log's last unit are looked at."""


class TimerFileCheck:
    """Each answer is one sentence's middle that says what is wrong, or None."""

    def __init__(self, store: MessageStore, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def fault_of_check(self, now_ms: int) -> str | None:
        """Before recovery."""
        checkpoint, end = self._files.checkpoint, self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0)
        if checkpoint.is_suspect:
            return "lacked messages in the last run"
        if checkpoint.cut:
            return "have a check point that was cut"
        if checkpoint.is_new:
            return "have no check point" if end else None
        if checkpoint.read_ms < 0 or (
            not checkpoint.is_ours and checkpoint.read_ms > now_ms + self._files.wheel.step_ms
        ):
            return f"have a check point that fired slot {checkpoint.read_ms}, it is {now_ms}"
        if checkpoint.queue_offset < 0 or (checkpoint.queue_offset > end and not checkpoint.lost_power):
            return f"have a check point that took {checkpoint.queue_offset} messages of a queue that ends at {end}"
        return None

    def fault_of_log(self) -> str | None:
        """Before recovery: up to where it was on the disk."""
        checkpoint, timer_log = self._files.checkpoint, self._files.log
        known_end = timer_log.last_end(checkpoint.flushed)
        if known_end is None:
            return f"have no unit at {checkpoint.flushed} of the log, up to which they were on the disk"
        end = timer_log.survey(self._files.wheel.step_ms, checkpoint.read_ms).end
        return f"have no whole unit at {end} of the log" if end < known_end else None

    def fault_of_chains(self) -> str | None:
        """Behind recovery: each slot that waits is the head of all its units, and no message fell between."""
        checkpoint, wheel, timer_log = self._files.checkpoint, self._files.wheel, self._files.log
        survey = timer_log.survey(wheel.step_ms, checkpoint.read_ms)
        if survey.odd >= 0:
            return (
                f"have a unit at {survey.odd} of the log that is chained to another slot's, or out of order"
            )
        reach = checkpoint.read_ms // wheel.step_ms + SLOTS
        for time, position in survey.heads.items():
            if time < reach and wheel.last(time) not in (position, -1):
                return f"have a wheel that does not name the unit at {position}"
        return self._lag() if checkpoint.is_ours and not checkpoint.lost_power else None

    def _lag(self) -> str | None:
        """A message that was taken up, and that the log's last unit does not come to."""
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
                and whole(decode(data, False).properties.get(Property.TIMER_OUT_MS, "")) is not None
            ):
                return f"took the message at {entry.physical_offset} and do not hold it"
        return None
