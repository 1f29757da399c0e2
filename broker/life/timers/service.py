"""TimerService: timer messages (TimerMessageStore), put together from intake and firing. Loop thread but `save`.
DisabledTimers stands in its place with timerWheelEnable=false.

The service opens `timerwheel`, `timerlog/` and `config/timercheck`; what the journal noted is heard before `start`.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.clock import Clock
from firearrow.broker.errors import Refusal, StartError
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.timers.delivery import Delivery
from firearrow.broker.life.timers.firing import Firing
from firearrow.broker.life.timers.intake import Intake
from firearrow.broker.life.timers.metrics import TimerMetrics
from firearrow.broker.life.timers.opening import TimerFiles
from firearrow.broker.life.timers.pending import Pending, Vouched
from firearrow.broker.life.timers.recall import delete_key
from firearrow.broker.life.timers.recovery import Recovery
from firearrow.broker.life.timers.soundness import Soundness
from firearrow.broker.options import Options
from firearrow.broker.parts import Parts
from firearrow.broker.tables import names

log = logging.getLogger("firearrow.timers")

CLEAN_S = 30.0
PACE_MS = 1000
QUEUE = (names.TIMER_TOPIC, 0)
FILES = "timers"
"""Their name for the saver."""
NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class Pace:
    """How much a count grows in a second, measured whenever it is asked for."""

    def __init__(self, clock: Clock, count: Callable[[], int]) -> None:
        self._clock = clock
        self._count = count
        self._since_ms, self._before, self._rate = clock.monotonic_ms(), count(), 0.0

    def rate(self) -> float:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= PACE_MS:
            count = self._count()
            self._rate = (count - self._before) * 1000 / (now_ms - self._since_ms)
            self._since_ms, self._before = now_ms, count
        return self._rate


class TimerService:
    """Its files are saved by the saver, once the log is on the disk: they name its records. StartError when they cannot
    be opened."""

    def __init__(self, parts: Parts, appender: Appender, metrics: TimerMetrics) -> None:
        options, store, clock = parts.config.options, parts.store, parts.clock
        self._loop = parts.loop
        self._settle = parts.saver.settle
        self._store = store
        self._clock = clock
        self._files = _opened(store, options, clock)
        self._works = self._files.works
        self._metrics = metrics
        self._delivery = Delivery(store, appender, parts.journal, clock, parts.stats)
        self._firing = Firing(
            parts.loop,
            store,
            self._works,
            self._delivery,
            metrics,
            clock,
            delete_key=lambda topic, key: delete_key(topic, key, with_topic=options.recall_key_with_topic),
            changed=lambda: parts.saver.changed(FILES),
        )
        self._intake = Intake(
            parts.loop,
            store,
            self._works,
            self._delivery,
            metrics,
            roll_slots=options.timer_roll_slots,
            moved=self._firing.wake,
            changed=lambda: parts.saver.changed(FILES),
        )
        self._unsure_ms = 0 if options.sync_flush else 2 * options.flush_interval_ms + 1000
        self._intake_pace = Pace(clock, lambda: self._intake.total)
        self._firing_pace = Pace(clock, lambda: self._firing.total)
        self._cleaning: asyncio.TimerHandle | None = None
        self._started = False
        self._vouched = Vouched()
        parts.saver.add(FILES, self.save)

    def restore(self, name: str, number: int, value: int) -> None:
        """The message at physical offset `value` of the timer's topic was delivered (journal)."""
        self._delivery.delivered.add(value)

    def start(self) -> None:
        """Take up what the files say. StartError when that cannot be."""
        try:
            fault = self._recovered()
            if fault is not None:
                self._lay_anew(fault)
            if self._works.check.is_new:
                self.save()
                self._files.keep_names()
        except OSError as error:
            raise _unusable(self._store.root, error) from None
        self._started = True
        self._intake.start()
        self._firing.start()
        self._clean()

    def _recovered(self) -> str | None:
        """Go on from the files; what is wrong with them if that cannot be. OSError."""
        works, now_ms = self._works, self._clock.now_ms()
        soundness = Soundness(self._store, works)
        fault = soundness.fault_of_check(now_ms)
        if fault is not None:
            return fault
        if works.check.is_ours:
            self._vouched = Vouched(works.check.queue_offset, works.check.read_ms - self._unsure_ms)
        fault = soundness.fault_of_log()
        if fault is not None:
            return fault
        recovery = Recovery(self._store, works.wheel, works.log, works.check)
        recovery.run(now_ms, self._unsure_ms)
        if recovery.lost and not works.check.lost_power:
            return f"have a wheel of which {recovery.lost} slots name no unit of theirs"
        fault = soundness.fault_of_chains()
        if fault is not None:
            return fault
        works.moved()
        works.read_ms = works.check.read_ms
        self._intake.linked = recovery.linked
        return None

    def _lay_anew(self, fault: str) -> None:
        """All that waits, from the timer's queue into new files; killed meanwhile, the next start does it. OSError."""
        works = self._works
        kept = self._files.begin_anew()
        log.error("the timer's files %s: what waits is laid anew from its queue; kept as %s", fault, kept)
        works.check.is_doubtful = True
        works.check.read_ms = works.read_ms = works.floor_ms()
        pending = Pending(self._store, self._vouched, works.read_ms)
        self._metrics.begin_anew()
        count = self._intake.retake(pending.waits)
        works.check.is_doubtful = False
        works.moved()
        log.warning("%d timer messages wait; those that nothing tells were delivered come twice", count)

    def stop(self) -> None:
        self._intake.stop()
        self._firing.stop()
        if self._cleaning is not None:
            self._cleaning.cancel()

    def close(self) -> None:
        """Once everything that was put is written. OSError."""
        works = self._works
        if self._started:
            self._firing.leave()
            self.save()
            works.check.done()
        for part in (works.check, works.wheel, works.log):
            part.close()

    def news(self, queues: set[tuple[str, int]]) -> None:
        if QUEUE in queues:
            self._intake.run()

    def save(self) -> None:
        """Bring wheel, log and check point to the disk; may run in another thread. OSError."""
        works = self._works
        end = works.laid  # before the files: what is laid meanwhile is not theirs to tell
        self._settle()
        works.log.sync(works.check.flushed)
        works.wheel.sync()
        works.check.sync(end)

    def slot_count(self, time_ms: int) -> int:
        """How many messages wait in the slot of that time."""
        return self._works.wheel.slot(time_ms).waiting

    def check_point(self) -> bytes:
        """The 56 bytes of GET_TIMER_CHECK_POINT."""
        return self._works.check.encoded()

    def metrics(self) -> bytes:
        """The JSON of GET_TIMER_METRICS."""
        return self._metrics.to_json()

    @property
    def is_behind(self) -> bool:
        """Messages are due that are not delivered yet, or not taken up."""
        works = self._works
        waiting = works.wheel.next(works.check.read_ms)
        late = waiting is not None and waiting < works.floor_ms()
        return late or works.check.queue_offset < self._store.reader.max_offset(*QUEUE)

    def runtime(self) -> dict[str, str]:
        """What the runtime info says of the timer."""
        works = self._works
        waiting = works.wheel.next(works.read_ms)
        behind_ms = 0 if waiting is None else max(works.floor_ms() - waiting, 0)
        behind = self._store.reader.max_offset(*QUEUE) - works.check.queue_offset
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(behind),
            "timerCongestNum": str(works.wheel.count),
            "timerEnqueueTps": str(self._intake_pace.rate()),
            "timerDequeueTps": str(self._firing_pace.rate()),
        }

    def _clean(self) -> None:
        """Log files whose messages are gone from the commit log go, too."""
        try:
            if not self._firing.is_firing:
                self._works.log.drop_below(self._store.min_physical)
        except OSError as error:
            log.warning("an old file of the timer log cannot be deleted: %s", error)
        self._cleaning = self._loop.call_later(CLEAN_S, self._clean)


class DisabledTimers:
    """Does nothing: it opens no file, and `rules` refuse every message for it."""

    is_behind = False

    def restore(self, name: str, number: int, value: int) -> None:
        """What was delivered while there were timers is of no use now."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def news(self, queues: set[tuple[str, int]]) -> None: ...

    def slot_count(self, time_ms: int) -> int:
        return 0

    def check_point(self) -> bytes:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")

    def metrics(self) -> bytes:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")

    def runtime(self) -> dict[str, str]:
        return dict(NO_TIMER)


def _opened(store: MessageStore, options: Options, clock: Clock) -> TimerFiles:
    try:
        return TimerFiles(Path(store.root), options, clock)
    except OSError as error:
        raise _unusable(store.root, error) from None


def _unusable(root: str, error: OSError) -> StartError:
    return StartError(
        f"cannot open the timer's files in {root} ({error.filename or root}: {error.strerror or error}): "
        "make room or set its permissions"
    )
