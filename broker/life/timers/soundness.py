"""Soundness: whether wheel, log and check point of the timer can be what the last run left. Reads only; loop thread,
at start.

A unit is checked for its form and its chain, not for the record it names: firing notices that.
"""

from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property
from firearrow.broker.life.timers.clockwork import TimerFiles
from firearrow.broker.life.timers.rules import whole
from firearrow.broker.life.timers.wheel import SLOTS
from firearrow.broker.tables import name_rules

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
        if checkpoint.read_ms < 0 or (not checkpoint.is_ours and checkpoint.read_ms > now_ms + self._files.wheel.step_ms):
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
