"""The timer of a broker (TimerMessageStore): opens its files, starts enqueue and dequeue, saves their
progress.

Files: `timerwheel`, `timerlog/` and `config/timercheck`. The progress journal calls `restore` before `start`.
With timerWheelEnable=false, `DisabledTimers` replaces `TimerService`. Loop thread, except `save`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.timer_layout import SLOTS, WHEEL_BYTES
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.options import Options
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.deliver import TimerDelivery
from firearrow.broker.timers.dequeue import TimerDequeue
from firearrow.broker.timers.enqueue import TimerEnqueue
from firearrow.broker.timers.log import TimerRecord
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.rebuild import TimerRebuild, TrustedCheckpoint
from firearrow.broker.timers.recall_handle import delete_key
from firearrow.broker.timers.recovery import Recovery, TimerFileCheck
from firearrow.broker.timers.timer_files import TimerFolder
from firearrow.broker.timers.wheel import TimerWheel

log = logging.getLogger("firearrow.timers")

CLEAN_S = 30.0
CLOCKS_DIFFER_MS = 60_000
"""A master whose clock was ahead of this broker's by less has delivered messages that are due only now."""
RATE_MS = 1000
QUEUE = (name_rules.TIMER_TOPIC, 0)
FILES = "timers"
"""The name of the timer's files at the table saver."""
NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class TimerLags(NamedTuple):
    """Messages not in their slot yet and the age in ms of the oldest; messages of the first slot that is due and not
    delivered, and how long it is due, in ms; all pending messages."""

    not_enqueued: int
    enqueue_ms: int
    due: int
    dequeue_ms: int
    pending: int


class RateMeter:
    """The growth of a count per second, since the last call that was at least RATE_MS earlier."""

    def __init__(self, clock: Clock, count: Callable[[], int]) -> None:
        self._clock = clock
        self._count = count
        self._since_ms, self._last_count, self._rate = clock.monotonic_ms(), count(), 0.0

    def rate(self) -> float:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= RATE_MS:
            count = self._count()
            self._rate = (count - self._last_count) * 1000 / (now_ms - self._since_ms)
            self._since_ms, self._last_count = now_ms, count
        return self._rate


class TimerService:
    """Raises StartError if its files cannot be opened.

    The table saver calls `save`, which first syncs the commit log: the timer's files refer to its records.
    """

    def __init__(self, context: BrokerContext, appender: Appender, metrics: TimerMetrics) -> None:
        options, store, clock = context.config.options, context.store, context.clock
        self._loop = context.loop
        self._sync_log = context.saver.sync_to_disk
        self._store = store
        self._clock = clock
        self._folder = _open(store, options, clock)
        self._timer_files = self._folder.files
        self._metrics = metrics
        self._delivery = TimerDelivery(store, appender, context.journal, clock, context.stats)
        self._dequeue = TimerDequeue(
            context.loop,
            store,
            self._timer_files,
            self._delivery,
            metrics,
            clock,
            delete_key=lambda topic, key: delete_key(
                topic, key, with_topic=context.config.options.recall_key_with_topic
            ),
            changed=lambda: context.saver.changed(FILES),
        )
        self._enqueue = TimerEnqueue(
            context.loop,
            store,
            self._timer_files,
            self._delivery,
            metrics,
            roll_slots=options.timer_roll_slots,
            enqueued=self._dequeue.wake,
            changed=lambda: context.saver.changed(FILES),
        )
        self._unsure_ms = 0 if options.sync_flush else 2 * options.flush_interval_ms + 1000
        self._enqueue_rate = RateMeter(clock, lambda: self._enqueue.total)
        self._dequeue_rate = RateMeter(clock, lambda: self._dequeue.total)
        self._cleaning: asyncio.TimerHandle | None = None
        self._started = False
        self._trusted = TrustedCheckpoint()
        context.saver.add(FILES, self.save, periodic=True)

    def restore(self, name: str, number: int, value: int) -> None:
        """From the journal: the timer message at physical offset `value` was delivered."""
        self._delivery.delivered.add(value)

    def start(self) -> None:
        """Recover from the files, then start enqueue and dequeue. Raises StartError."""
        try:
            fault = self._recover()
            if fault is not None:
                self._rebuild(fault)
            if self._timer_files.checkpoint.is_new:
                self.save()
                self._folder.sync_names()
        except OSError as error:
            raise _unusable(self._store.root, error) from None
        self._started = True
        self._enqueue.start()
        self._dequeue.start()
        self._clean()

    def begin_following(self) -> None:
        """On a slave, at start: what was delivered so far is not known, until `follow` states it. StartError."""
        files = self._timer_files
        if files.checkpoint.is_followed:
            return
        files.checkpoint.read_ms = files.checkpoint.queue_offset = 0
        files.checkpoint.is_suspect, files.checkpoint.is_followed = False, True
        try:
            files.write_checkpoint()
        except OSError as error:
            raise _unusable(self._store.root, error) from None

    def follow(self, check_point: bytes) -> None:
        """On a slave: take the master's progress (the body of GET_TIMER_CHECK_POINT) once the log has what the master
        had then. Wheel and timer log are not kept meanwhile: the mark states it, and a start as a master rebuilds
        them from the queue. OSError; ValueError: it has another length."""
        files = self._timer_files
        files.checkpoint.follow(check_point)
        files.write_checkpoint()

    def take_over(self, check_point: bytes) -> bool:
        """Before the start: whether a slave that acted in our place (the body of its GET_TIMER_CHECK_POINT) delivered
        more than we did. Its progress is trusted for the messages that it had, and our wheel is rebuilt from the
        queue. OSError; ValueError: it has another length."""
        files = self._timer_files
        further = files.checkpoint.further(check_point)
        if further is None or files.checkpoint.is_new:
            return False
        self._trusted = TrustedCheckpoint(offset=further[1], read_ms=further[0] - self._unsure_ms)
        files.checkpoint.is_suspect = True
        files.write_checkpoint()
        return True

    def follow_metrics(self, text: bytes) -> None:
        """On a slave: take the master's counts (the body of GET_TIMER_METRICS). ValueError."""
        self._metrics.load(text)

    def _recover(self) -> str | None:
        """Continue from the files; if they are damaged, return what is wrong. Raises OSError."""
        files, now_ms = self._timer_files, self._clock.now_ms()
        file_check = TimerFileCheck(self._store, files)
        if files.checkpoint.is_followed and not files.checkpoint.lost_power:
            self._trusted = TrustedCheckpoint(files.checkpoint.queue_offset, files.checkpoint.read_ms)
        fault = file_check.checkpoint_fault(now_ms)
        if fault is not None:
            return fault
        if files.checkpoint.is_ours:
            self._trusted = TrustedCheckpoint(
                files.checkpoint.queue_offset, files.checkpoint.read_ms - self._unsure_ms
            )
        fault = file_check.log_fault()
        if fault is not None:
            return fault
        recovery = Recovery(self._store, files.wheel, files.log, files.checkpoint)
        recovery.run(now_ms, self._unsure_ms)
        if recovery.lost and not files.checkpoint.lost_power:
            return f"have a wheel with {recovery.lost} slots that refer to no record of theirs"
        fault = file_check.chain_fault()
        if fault is not None:
            return fault
        files.write_checkpoint()
        files.read_ms = files.checkpoint.read_ms
        self._enqueue.linked = recovery.linked
        return None

    def _rebuild(self, fault: str) -> None:
        """Enqueue all pending messages from the queue into new files. Raises OSError.

        After a kill the next start repeats it.
        """
        files = self._timer_files
        followed = files.checkpoint.is_followed
        kept = self._folder.reset(keep=not followed)
        if followed:
            log.info("this broker was a slave: reading pending messages from the timer's queue")
        else:
            log.error(
                "the timer's files %s: reading pending messages again from the timer's queue; old files: %s",
                fault,
                kept,
            )
        files.checkpoint.is_suspect = True
        files.checkpoint.read_ms = files.read_ms = files.current_slot_ms()
        pending = TimerRebuild(self._store, self._trusted, files.read_ms + CLOCKS_DIFFER_MS)
        self._metrics.reset()
        count = self._enqueue.enqueue_waiting(pending.waits)
        files.checkpoint.is_suspect = False
        files.write_checkpoint()
        if followed and not pending.unsure:
            log.info("%d timer messages are pending", count)
        else:
            log.info("%d timer messages are pending; some may be delivered a second time", count)

    def stop(self) -> None:
        self._enqueue.stop()
        self._dequeue.stop()
        if self._cleaning is not None:
            self._cleaning.cancel()

    def close(self) -> None:
        """Close the files, after everything that was put is written. Raises OSError."""
        files = self._timer_files
        if self._started:
            self._dequeue.skip_delivered()
            self.save()
            files.checkpoint.seal_closed()
        for file in (files.checkpoint, files.wheel, files.log):
            file.close()

    def messages_arrived(self, queues: set[tuple[str, int]]) -> None:
        if QUEUE in queues:
            self._enqueue.run()

    def save(self) -> None:
        """Sync wheel, log and checkpoint. May run in another thread. Raises OSError."""
        files = self._timer_files
        end = files.flushed_position  # read first: records that are appended while we sync may not be durable
        self._sync_log()
        files.log.sync(files.checkpoint.flushed)
        files.wheel.sync()
        files.checkpoint.sync(end)

    def slot_count(self, time_ms: int) -> int:
        """How many messages are pending in the slot of that time."""
        return self._timer_files.wheel.slot(time_ms).waiting

    @property
    def step_ms(self) -> int:
        return self._timer_files.wheel.step_ms

    def pending(self, from_ms: int = 0) -> Iterator[tuple[int, TimerRecord]]:
        """Slot time in ms and timer record of each message that waits in a slot from `from_ms` on, in the order
        of slots. The files may change while it is read."""
        wheel, log_ = self._timer_files.wheel, self._timer_files.log
        at_ms = max(from_ms, self._timer_files.checkpoint.read_ms)
        until_ms = at_ms + SLOTS * wheel.step_ms
        while (slot_ms := wheel.next(at_ms)) is not None and slot_ms < until_ms:
            position = wheel.slot(slot_ms).last
            while position >= log_.start and (timer_record := log_.read(position)) is not None:
                yield slot_ms, timer_record
                position = timer_record.prev
            at_ms = slot_ms + wheel.step_ms

    def check_point(self) -> bytes:
        """The 56 bytes of GET_TIMER_CHECK_POINT."""
        return self._timer_files.checkpoint.encoded()

    def metrics(self) -> bytes:
        """The JSON of GET_TIMER_METRICS."""
        return self._metrics.to_json()

    def pending_by_topic(self) -> dict[str, int]:
        """Topic → pending messages."""
        return self._metrics.counts()

    def lags(self) -> TimerLags:
        files = self._timer_files
        next_ms, now_ms = files.wheel.next(files.read_ms), files.current_slot_ms()
        due = next_ms is not None and next_ms < now_ms
        behind = self._store.reader.max_offset(*QUEUE) - files.checkpoint.queue_offset
        oldest_ms = self._store.reader.store_time(*QUEUE, files.checkpoint.queue_offset) if behind > 0 else -1
        return TimerLags(
            max(behind, 0),
            max(self._clock.now_ms() - oldest_ms, 0) if oldest_ms >= 0 else 0,
            files.wheel.slot(next_ms).waiting if due and next_ms is not None else 0,
            now_ms - next_ms if due and next_ms is not None else 0,
            files.wheel.count,
        )

    @property
    def is_late(self) -> bool:
        """Whether due messages are not delivered yet, or messages of the queue not enqueued."""
        files = self._timer_files
        next_ms = files.wheel.next(files.checkpoint.read_ms)
        late = next_ms is not None and next_ms < files.current_slot_ms()
        return late or files.checkpoint.queue_offset < self._store.reader.max_offset(*QUEUE)

    def runtime(self) -> dict[str, str]:
        """The timer's part of the broker's runtime info."""
        files = self._timer_files
        next_ms = files.wheel.next(files.read_ms)
        late_ms = 0 if next_ms is None else max(files.current_slot_ms() - next_ms, 0)
        not_enqueued = self._store.reader.max_offset(*QUEUE) - files.checkpoint.queue_offset
        return {
            "timerReadBehind": str(late_ms // 1000),
            "timerOffsetBehind": str(not_enqueued),
            "timerCongestNum": str(files.wheel.count),
            "timerEnqueueTps": str(self._enqueue_rate.rate()),
            "timerDequeueTps": str(self._dequeue_rate.rate()),
        }

    def _clean(self) -> None:
        """Delete timer log files whose messages no longer exist in the commit log."""
        try:
            if not self._dequeue.is_delivering:
                self._timer_files.log.drop_below(self._store.min_physical)
        except OSError as error:
            log.info("an old timer log file cannot be deleted; trying again later: %s", error)
        self._cleaning = self._loop.call_later(CLEAN_S, self._clean)


class DisabledTimers:
    """The timer with timerWheelEnable=false: delivers nothing; `rules` refuses every timer message.

    Messages that wait from before are counted once, at start, and logged.
    """

    is_late = False
    step_ms = 1

    def __init__(self, store: MessageStore, options: Options) -> None:
        self._store = store
        self._options = options
        self._waiting = 0

    def restore(self, name: str, number: int, value: int) -> None:
        """Ignored: without a timer nothing is delivered twice."""

    def start(self) -> None:
        try:
            self._waiting = waiting_messages(self._store, self._options)
        except OSError as error:
            raise _unusable(self._store.root, error) from None
        if self._waiting:
            log.warning(
                "timerWheelEnable=false, but %d messages wait in the timer (delayed ones, and popped ones for "
                "their acknowledgement) and are not delivered: start the broker with timerWheelEnable=true "
                "before the log's retention deletes them; those that are due are delivered at once then",
                self._waiting,
            )

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def messages_arrived(self, queues: set[tuple[str, int]]) -> None: ...

    def slot_count(self, time_ms: int) -> int:
        return 0

    def pending(self, from_ms: int = 0) -> Iterator[tuple[int, TimerRecord]]:
        return iter(())

    def check_point(self) -> bytes:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")

    def metrics(self) -> bytes:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")

    def pending_by_topic(self) -> dict[str, int]:
        return {}

    def lags(self) -> TimerLags:
        return TimerLags(0, 0, 0, 0, self._waiting)

    def runtime(self) -> dict[str, str]:
        return NO_TIMER | {"timerCongestNum": str(self._waiting)}


def waiting_messages(store: MessageStore, options: Options) -> int:
    """Messages of the timer that are not delivered, read from its files, which are not changed. OSError."""
    root, count = Path(store.root), 0
    first, wheel_path, checkpoint_path = 0, root / "timerwheel", root / "config" / "timercheck"
    if checkpoint_path.exists() and wheel_path.exists() and wheel_path.stat().st_size == WHEEL_BYTES:
        checkpoint = TimerCheckpoint(checkpoint_path)
        wheel = TimerWheel(wheel_path, options.timer_precision_ms)
        wheel.load(checkpoint.read_ms)
        first, count = checkpoint.queue_offset, wheel.count
        checkpoint.close()
        wheel.close()
    low, high = store.reader.min_offset(*QUEUE), store.reader.max_offset(*QUEUE)
    return count + max(high - max(first, low), 0)


def _open(store: MessageStore, options: Options, clock: Clock) -> TimerFolder:
    try:
        return TimerFolder(Path(store.root), options, clock)
    except OSError as error:
        raise _unusable(store.root, error) from None


def _unusable(root: str, error: OSError) -> StartError:
    return StartError(
        f"cannot open the timer's files in {root} ({error.filename or root}: {error.strerror or error}): "
        "free disk space or correct the permissions"
    )
