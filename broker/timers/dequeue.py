"""Delivers the messages of each slot once its time has passed. Loop thread.

A slot's chain is read from its head, last message first; then recalls are applied, then the other messages
are delivered in their order, all in slices, so that other work runs in between. A slice must be as durable as
the flush mode promises before the next one starts; the checkpoint moves after the last slice. At start, and
after a slot that put messages back into the timer's topic (a roll), no slot is delivered before all messages
of that topic are enqueued: after a long stop, a recall may be among them.
"""

import asyncio
import logging
from array import array
from collections import Counter, deque
from collections.abc import Callable

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore, PutRefused
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.message import Property
from firearrow.broker.timers.deliver import TimerDelivery
from firearrow.broker.timers.log import DELETE, ROLL, TimerRecord
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.slice_loop import SliceLoop
from firearrow.broker.timers.timer_files import TimerFiles

log = logging.getLogger("firearrow.timers")

SLICE = 64
CHAIN_SLICE = 2000
SLEEP_S_MAX = 1.0
"""Within this time a wall clock that was set forward is noticed."""


class DueSlot:
    """A slot that is being delivered.

    `position`: where the rest of its chain begins in the timer log, -1 if all of it was read. `deletes`,
    `others`: positions of recalls and of other records, newest first. The first `read` recalls were applied;
    delivered records are removed from `others`. The oldest `relinked` recalls are chained to each other
    already, without the delivered records between them; `head` is the newest of these.
    """

    __slots__ = ("deletes", "head", "keys", "others", "position", "read", "relinked", "time_ms")

    def __init__(self, time_ms: int, position: int) -> None:
        self.time_ms = time_ms
        self.position = position
        self.deletes = array("q")
        self.others = array("q")
        self.keys: set[tuple[str, str]] = set()
        """Topic and key of what the recalls delete: a recall deletes messages of its own topic only."""
        self.read = 0
        self.relinked = 0
        self.head = -1

    @property
    def is_empty(self) -> bool:
        return self.position < 0 and self.read == len(self.deletes) and not self.others


class TimerDequeue(SliceLoop):
    """`delete_key(topic, unique_key)`: the key by which a recall names that message.

    `changed()` is called when files have changed.
    """

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
        super().__init__(loop, "timer messages cannot be delivered now; trying again")
        self._store = store
        self._files = files
        self._delivery = delivery
        self._metrics = metrics
        self._clock = clock
        self._delete_key = delete_key
        self._changed = changed
        self._enqueued_min = 0
        """The queue offset that enqueue must reach before another slot is delivered."""
        self._due: DueSlot | None = None
        self._ends: deque[tuple[int, int]] = deque()
        """For each delivered slice: its end in the commit log, and the position of the next timer record."""
        self.total = 0

    def start(self) -> None:
        self._enqueued_min = self._queue_end()
        super().start()

    def wake(self) -> None:
        """Messages were enqueued, possibly into an earlier slot than the one that we wait for."""
        if self._due is None:
            self.run()

    def _slice(self) -> None:
        """Deliver a slice of what is due; if nothing is, sleep until the next slot."""
        self._due = self._due or self._next()
        if self._due is not None:
            self._deliver_slice(self._due)

    @property
    def is_delivering(self) -> bool:
        """Whether a slot is being delivered: then no timer log file may be deleted."""
        return self._due is not None

    def skip_delivered(self) -> None:
        """Remove delivered records from the slot's chain: the next process then delivers only the rest.

        Called at stop, when everything is durable. Raises OSError.
        """
        due = self._due
        if due is not None and due.is_empty:
            self._end(due)
        elif due is not None and self._ends:
            self._unlink_delivered(due, self._ends.pop()[1])

    def _next(self) -> DueSlot | None:
        files = self._files
        files.check_clock()
        if files.checkpoint.queue_offset < self._enqueued_min:
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

    def _deliver_slice(self, due: DueSlot) -> None:
        self._unlink_flushed(due)
        if due.position >= 0:
            self._read_chain(due)
        elif due.read < len(due.deletes):
            self._read_deletes(due)
        elif due.others:
            return self._deliver(due)
        else:
            self._end(due)
        self._arm(0)

    def _read_chain(self, due: DueSlot) -> None:
        """Read the chain. Records before the log's start were deleted with their messages, by retention."""
        step_ms, start = self._files.wheel.step_ms, self._files.log.start
        for _ in range(CHAIN_SLICE):
            if due.position < start:
                due.position = -1
                return
            timer_record = self._files.log.read(due.position)
            if timer_record is None or timer_record.time_ms // step_ms * step_ms != due.time_ms:
                self._mark_suspect(f"the chain of the slot at {due.time_ms} is broken")
                due.position = -1
                return
            (due.deletes if timer_record.magic & (DELETE | ROLL) == DELETE else due.others).append(
                due.position
            )
            due.position = timer_record.prev

    def _read_deletes(self, due: DueSlot) -> None:
        positions = due.deletes[due.read : due.read + SLICE]
        due.read += len(positions)
        for position in positions:
            record = self._delivery.record(self._timer_record(position).physical_offset)
            if record is not None:
                properties = record.properties
                topic = properties.get(Property.REAL_TOPIC, "")
                due.keys.add((topic, properties.get(Property.TIMER_DELETE_KEY, "")))
                self._metrics.add(properties.get(Property.REAL_TOPIC), 1)

    def _deliver(self, due: DueSlot) -> None:
        """Deliver a slice. Raises PutRefused if not even the first message can be put."""
        end = 0
        topics: Counter[str] = Counter()
        done, rolled = 0, False
        self._delivery.begin_slice()
        for position in reversed(due.others[-SLICE:]):
            timer_record = self._timer_record(position)
            try:
                put = self._put(due, timer_record)
            except PutRefused:
                if not end and not done:
                    raise
                break
            if put is not None:
                topics[put[0]] += 1
                end = put[1] or end
            elif self._delivery.is_dangling(timer_record.physical_offset):
                self._mark_suspect(f"its record at {position} refers to no message")
            rolled |= bool(timer_record.magic & ROLL)
            done += 1

        def stored() -> None:
            self.total += done
            if rolled:
                self._enqueued_min = self._queue_end()
            del due.others[len(due.others) - done :]
            if due.others:
                self._ends.append((end, due.others[-1]))
            for topic, count in topics.items():
                if topic:
                    self._metrics.dequeued(topic, count)
            self._arm(0)

        if not end:
            return stored()
        self._when_stored(self._delivery.appender, end, stored)

    def _put(self, due: DueSlot, timer_record: TimerRecord) -> tuple[str, int] | None:
        """Put one message: its topic, and the end of the log, 0 if it was recalled or is skipped. None: there is no
        message."""
        roll = bool(timer_record.magic & ROLL)
        if not due.keys and not roll:
            put = self._delivery.put_alike(timer_record.physical_offset, timer_record.write_ms)
            if put is not None:
                return put
        record = self._delivery.record(timer_record.physical_offset)
        if record is None:
            return None
        properties = record.properties
        topic = properties.get(Property.REAL_TOPIC, "")
        unique_key = properties.get(Property.UNIQUE_KEY) if due.keys else None
        if unique_key is not None and (topic, self._delete_key(topic, unique_key)) in due.keys:
            return topic, 0
        last = self._delivery.put(record, properties, timer_record.write_ms, roll=roll)
        return topic, 0 if last is None else last.end

    def _mark_suspect(self, damage: str) -> None:
        """The timer's files are damaged: the next start rebuilds them from the queue. Logged once."""
        checkpoint = self._files.checkpoint
        if not checkpoint.is_suspect:
            log.error(
                "the timer log is damaged: %s. To rebuild it from the timer's queue, start the broker again",
                damage,
            )
        checkpoint.is_suspect = True

    def _unlink_flushed(self, due: DueSlot) -> None:
        """Remove delivered records from the chain once their deliveries are durable. Raises OSError."""
        follower, flushed = -1, self._store.flushed
        while self._ends and self._ends[0][0] <= flushed:
            follower = self._ends.popleft()[1]
        if follower >= 0:
            self._unlink_delivered(due, follower)

    def _unlink_delivered(self, due: DueSlot, follower: int) -> None:
        """Let the chain begin at `follower`, after the recalls, which stay in it."""
        relink = self._files.log.relink
        while due.relinked < len(due.deletes) and due.deletes[-1 - due.relinked] < follower:
            relink(due.deletes[-1 - due.relinked], due.head)
            due.head = due.deletes[-1 - due.relinked]
            due.relinked += 1
        relink(follower, due.head)

    def _queue_end(self) -> int:
        """The end of the timer's queue."""
        return self._store.reader.max_offset(name_rules.TIMER_TOPIC, 0)

    def _timer_record(self, position: int) -> TimerRecord:
        timer_record = self._files.log.read(position)
        assert timer_record is not None, "a record that was read before is in the log"
        return timer_record

    def _end(self, due: DueSlot) -> None:
        files = self._files
        files.checkpoint.read_ms = due.time_ms + files.wheel.step_ms
        files.write_checkpoint()
        files.wheel.mark_delivered(due.time_ms)
        self._due = None
        self._ends.clear()
        self._changed()
