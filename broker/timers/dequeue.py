"""Firing: delivers the messages of each slot once its time has passed. Loop thread.

A slot's chain is walked from its head, last message first; then what recalls, then the others in their order, all in
slices, so that other work goes on between. A slice must be as durable as the flush mode promises before the next one;
the check point moves on behind the last. Behind a slot that gave messages back to the timer's topic, and at the start,
no slot is fired before all that lies in that topic was laid: after a long stop, what recalls a message may lie there.
"""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Callable

from firearrow._native.store.log.record import Record
from firearrow._native.store.message_store import MessageStore, PutRefused, PutResult
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.message import Property
from firearrow.broker.tables import name_rules
from firearrow.broker.timers.deliver import TimerDelivery
from firearrow.broker.timers.log import DELETE, ROLL, TimerRecord
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.slice_loop import SliceLoop
from firearrow.broker.timers.timer_files import TimerFiles

log = logging.getLogger("firearrow.timers")

SLICE = 64
WALK = 2000
SLEEP_S_MAX = 1.0
"""A wall clock that is set forward is noticed by then."""


class DueSlot:
    """A slot that is being fired: the rest of its chain from `position`, and positions of units, the first one last.

    `read` deletes were looked at; `others` loses what is delivered. `cut` deletes, counted from the first, are chained
    to each other already, `head` is the last of them: the chain leaves out what was delivered between them.
    """

    __slots__ = ("cut", "deletes", "head", "keys", "others", "position", "read", "time_ms")

    def __init__(self, time_ms: int, position: int) -> None:
        self.time_ms = time_ms
        self.position = position
        self.deletes = array("q")
        self.others = array("q")
        self.keys: set[str] = set()
        self.read = 0
        self.cut = 0
        self.head = -1

    @property
    def is_empty(self) -> bool:
        return self.position < 0 and self.read == len(self.deletes) and not self.others


class TimerDequeue(SliceLoop):
    """`delete_key(topic, unique_key)` is what a recall of that message carries; `changed()` is called when files have
    changed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        files: TimerFiles,
        delivery: TimerDelivery,
        metrics: TimerMetrics,
        clock: Clock,
        *,
        delete_key: Callable[[str, str], str],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(loop, "timer messages cannot be delivered now")
        self._store = store
        self._files = files
        self._delivery = delivery
        self._metrics = metrics
        self._clock = clock
        self._delete_key = delete_key
        self._changed = changed
        self._awaited = 0
        """Where the intake must have come before another slot is fired."""
        self._due: DueSlot | None = None
        self._ends: deque[tuple[int, int]] = deque()
        """Of slices that were delivered: end in the commit log, position of the unit that follows."""
        self.total = 0

    def start(self) -> None:
        self._awaited = self._queued()
        super().start()

    def wake(self) -> None:
        """Messages were taken, maybe laid into a slot before that for which we sleep."""
        if self._due is None:
            self.run()

    def _slice(self) -> None:
        """Of what is due; sleep until the next slot is."""
        self._due = self._due or self._next()
        if self._due is not None:
            self._go_on(self._due)

    @property
    def is_delivering(self) -> bool:
        """A slot is being fired: no file of the log may go."""
        return self._due is not None

    def skip_delivered(self) -> None:
        """What was delivered of a slot is left out of its chain: another run fires the rest. All is on the disk.
        OSError."""
        due = self._due
        if due is not None and due.is_empty:
            self._end(due)
        elif due is not None and self._ends:
            self._cut(due, self._ends.pop()[1])

    def _next(self) -> DueSlot | None:
        files = self._files
        files.check_clock()
        if files.checkpoint.queue_offset < self._awaited:
            return None
        time_ms, current_slot_ms = files.wheel.next(files.read_ms), files.current_slot_ms()
        if time_ms is None or time_ms >= current_slot_ms:
            files.read_ms = max(files.read_ms, current_slot_ms)
        if time_ms is None:
            return None
        if time_ms >= current_slot_ms:
            wait_ms = time_ms + files.wheel.step_ms - self._clock.now_ms()
            self._arm(min(wait_ms / 1000, SLEEP_S_MAX))
            return None
        files.read_ms = time_ms + files.wheel.step_ms
        return DueSlot(time_ms, files.wheel.slot(time_ms).last)

    def _go_on(self, due: DueSlot) -> None:
        self._cut_flushed(due)
        if due.position >= 0:
            self._walk(due)
        elif due.read < len(due.deletes):
            self._read_deletes(due)
        elif due.others:
            return self._deliver(due)
        else:
            self._end(due)
        self._arm(0)

    def _walk(self, due: DueSlot) -> None:
        """Below the log's start lie messages that went with the old segments."""
        step_ms, start = self._files.wheel.step_ms, self._files.log.start
        for _ in range(WALK):
            if due.position < start:
                due.position = -1
                return
            timer_record = self._files.log.read(due.position)
            if timer_record is None or timer_record.time_ms // step_ms * step_ms != due.time_ms:
                self._mark_suspect(f"the chain of slot {due.time_ms} ends in a gap")
                due.position = -1
                return
            (due.deletes if timer_record.magic & (DELETE | ROLL) == DELETE else due.others).append(
                due.position
            )
            due.position = timer_record.prev

    def _read_deletes(self, due: DueSlot) -> None:
        slice_ = due.deletes[due.read : due.read + SLICE]
        due.read += len(slice_)
        for position in slice_:
            record = self._delivery.record(self._timer_record(position).physical_offset)
            if record is not None:
                properties = record.properties
                due.keys.add(properties.get(Property.TIMER_DELETE_KEY, ""))
                self._metrics.add(properties.get(Property.REAL_TOPIC), 1)

    def _deliver(self, due: DueSlot) -> None:
        """PutRefused: the first cannot be put."""
        last: PutResult | None = None
        topics: list[str | None] = []
        done, rolled = 0, False
        for position in reversed(due.others[-SLICE:]):
            timer_record = self._timer_record(position)
            record = self._delivery.record(timer_record.physical_offset)
            if record is not None:
                try:
                    last = self._put(due, timer_record, record) or last
                except PutRefused:
                    if last is None and not done:
                        raise
                    break
                topics.append(record.properties.get(Property.REAL_TOPIC))
            elif self._delivery.names_none(timer_record.physical_offset):
                self._mark_suspect(f"the unit at {position} names no message")
            rolled |= bool(timer_record.magic & ROLL)
            done += 1

        def stored() -> None:
            self.total += done
            if rolled:
                self._awaited = self._queued()
            del due.others[len(due.others) - done :]
            if due.others:
                self._ends.append((last.end if last else 0, due.others[-1]))
            for topic in topics:
                self._metrics.add(topic, -1)
            self._arm(0)

        if last is None:
            return stored()
        self._when_stored(self._delivery.appender, last.end, stored)

    def _put(self, due: DueSlot, timer_record: TimerRecord, record: Record) -> PutResult | None:
        """None if it was recalled, or is passed over."""
        if due.keys:
            properties = record.properties
            unique_key = properties.get(Property.UNIQUE_KEY)
            topic = properties.get(Property.REAL_TOPIC, "")
            if unique_key is not None and self._delete_key(topic, unique_key) in due.keys:
                return None
        return self._delivery.put(record, timer_record.write_ms, roll=bool(timer_record.magic & ROLL))

    def _mark_suspect(self, what: str) -> None:
        """The timer's files are damaged: what they lost is found in the queue by the next start. Said once."""
        checkpoint = self._files.checkpoint
        if not checkpoint.is_suspect:
            log.error("the timer's log is damaged, %s: start the broker again, it lays what waits anew", what)
        checkpoint.is_suspect = True

    def _cut_flushed(self, due: DueSlot) -> None:
        """Leave out of the chain what was delivered and is on the disk. OSError."""
        follower, flushed = -1, self._store.flushed
        while self._ends and self._ends[0][0] <= flushed:
            follower = self._ends.popleft()[1]
        if follower >= 0:
            self._cut(due, follower)

    def _cut(self, due: DueSlot, follower: int) -> None:
        """The chain begins at `follower`, but for what deletes."""
        relink = self._files.log.relink
        while due.cut < len(due.deletes) and due.deletes[-1 - due.cut] < follower:
            relink(due.deletes[-1 - due.cut], due.head)
            due.head = due.deletes[-1 - due.cut]
            due.cut += 1
        relink(follower, due.head)

    def _queued(self) -> int:
        """The end of the timer's topic."""
        return self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0)

    def _timer_record(self, position: int) -> TimerRecord:
        timer_record = self._files.log.read(position)
        assert timer_record is not None, "a unit that was walked over lies in the log"
        return timer_record

    def _end(self, due: DueSlot) -> None:
        files = self._files
        files.checkpoint.read_ms = due.time_ms + files.wheel.step_ms
        files.write_checkpoint()
        files.wheel.fired(due.time_ms)
        self._due = None
        self._ends.clear()
        self._changed()
