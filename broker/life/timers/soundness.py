"""Soundness: whether wheel, log and check point of the timer can be what the last run left. Reads only; loop thread,
at start.

A unit is checked for its form and its chain, not for the record it names: firing notices that.
"""

from firearrow._native.store.record import decode
from firearrow._native.store.store import MessageStore
from firearrow.broker.life.timers.clockwork import Clockwork
from firearrow.broker.life.timers.rules import whole
from firearrow.broker.life.timers.wheel import SLOTS
from firearrow.broker.messages import Property
from firearrow.broker.tables import names

LAG_MAX = 10_000
"""So many messages behind the log's last unit are looked at."""


class Soundness:
    """Each answer is one sentence's middle that says what is wrong, or None."""

    def __init__(self, store: MessageStore, works: Clockwork) -> None:
        self._store = store
        self._works = works

    def fault_of_check(self, now_ms: int) -> str | None:
        """Before recovery."""
        check, end = self._works.check, self._store.reader.max_offset(names.TIMER_TOPIC, 0)
        if check.is_doubtful:
            return "lacked messages in the last run"
        if check.cut:
            return "have a check point that was cut"
        if check.is_new:
            return "have no check point" if end else None
        if check.read_ms < 0 or (not check.is_ours and check.read_ms > now_ms + self._works.wheel.step_ms):
            return f"have a check point that fired slot {check.read_ms}, it is {now_ms}"
        if check.queue_offset < 0 or (check.queue_offset > end and not check.lost_power):
            return f"have a check point that took {check.queue_offset} messages of a queue that ends at {end}"
        return None

    def fault_of_log(self) -> str | None:
        """Before recovery: up to where it was on the disk."""
        check, timer_log = self._works.check, self._works.log
        known_end = timer_log.last_end(check.flushed)
        if known_end is None:
            return f"have no unit at {check.flushed} of the log, up to which they were on the disk"
        end = timer_log.survey(self._works.wheel.step_ms, check.read_ms).end
        return f"have no whole unit at {end} of the log" if end < known_end else None

    def fault_of_chains(self) -> str | None:
        """Behind recovery: each slot that waits is the head of all its units, and no message fell between."""
        check, wheel, timer_log = self._works.check, self._works.wheel, self._works.log
        survey = timer_log.survey(wheel.step_ms, check.read_ms)
        if survey.odd >= 0:
            return (
                f"have a unit at {survey.odd} of the log that is chained to another slot's, or out of order"
            )
        reach = check.read_ms // wheel.step_ms + SLOTS
        for time, position in survey.heads.items():
            if time < reach and wheel.last(time) not in (position, -1):
                return f"have a wheel that does not name the unit at {position}"
        return self._lag() if check.is_ours and not check.lost_power else None

    def _lag(self) -> str | None:
        """A message that was taken up, and that the log's last unit does not come to."""
        store, offset = self._store, self._works.check.queue_offset
        last = self._works.log.last()
        begin = store.reader.min_offset(names.TIMER_TOPIC, 0)
        if last is not None:
            data = store.reader.record_at(last.physical_offset)
            record = None if data is None else decode(data, False)
            if record is None or record.topic != names.TIMER_TOPIC:
                return None
            begin = record.queue_offset + 1
        for entry in store.reader.entries(names.TIMER_TOPIC, 0, begin, min(offset - begin, LAG_MAX)):
            data = store.reader.record_at(entry.physical_offset)
            if (
                data is not None
                and whole(decode(data, False).properties.get(Property.TIMER_OUT_MS, "")) is not None
            ):
                return f"took the message at {entry.physical_offset} and do not hold it"
        return None
