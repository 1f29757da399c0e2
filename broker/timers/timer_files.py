"""Clockwork: wheel, log and check point of the timer with its two times, shared by intake and firing. Loop thread.

`read_ms` is the first slot that nobody has begun to fire; messages are only laid into slots at or behind `write_ms`,
which is never before it, so a slot that is being fired grows no more.

Opening: the timer's files opened, and set aside when they cannot be used. Loop thread, at start.
"""

import contextlib
import logging
from pathlib import Path

from firearrow._native.store.files.directory_sync import fsync_dir
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.options import Options
from firearrow.broker.tables.config_file import set_aside
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.log import TimerLog, TimerLogDamaged
from firearrow.broker.timers.wheel import BLANK_SLOTS, SLOTS, TimerWheel

log = logging.getLogger("firearrow.timers")

BACK_SLOTS_MAX = 36_000
"""A clock that is set back further is waited for: meanwhile new messages are due at once."""


class TimerFiles:
    def __init__(
        self, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpoint, clock: Clock
    ) -> None:
        self.wheel = wheel
        self.log = timer_log
        self.checkpoint = checkpoint
        self.read_ms = checkpoint.read_ms
        self.flushed_position = checkpoint.flushed
        """Position in the log up to which wheel and check point know all: what is saved as flushed."""
        self._clock = clock

    def current_slot_ms(self) -> int:
        """The slot of now."""
        return self._clock.now_ms() // self.wheel.step_ms * self.wheel.step_ms

    def write_ms(self) -> int:
        """The first slot that takes messages."""
        return max(self.current_slot_ms(), self.read_ms)

    def last_slot_ms(self) -> int:
        """The last slot that takes messages: behind it the wheel may still hold those that nobody has fired."""
        return self.read_ms + (SLOTS - BLANK_SLOTS) * self.wheel.step_ms

    def check_clock(self) -> None:
        """If the clock was set back, the slots since then are empty and to come again. OSError."""
        current_slot_ms, step_ms = self.current_slot_ms(), self.wheel.step_ms
        if current_slot_ms >= self.read_ms or self.read_ms - current_slot_ms > BACK_SLOTS_MAX * step_ms:
            return
        log.warning("the clock was set back by %d ms", self.read_ms - current_slot_ms)
        for time_ms in range(current_slot_ms, self.read_ms, step_ms):
            self.wheel.clear(time_ms)
        self.read_ms = self.checkpoint.read_ms = current_slot_ms
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write the check point. OSError."""
        self.checkpoint.write_checkpoint(self._clock.now_ms())
        self.flushed_position = self.log.end


class TimerFolder:
    """Where the three lie in the store at `root`; `files` holds them open."""

    def __init__(self, root: Path, options: Options, clock: Clock) -> None:
        self._root = root
        self._options = options
        (root / "config").mkdir(exist_ok=True)
        self._wheel, self._log, self._checkpoint = (
            root / "timerwheel",
            root / "timerlog",
            root / "config" / "timercheck",
        )
        timer_log = self._opened_log()
        self.files = TimerFiles(
            TimerWheel(self._wheel, options.timer_precision_ms),
            timer_log,
            TimerCheckpoint(self._checkpoint),
            clock,
        )

    def reset(self) -> str:
        """Empty files in place of these, which are kept; their names. The log goes first: a start that finds the
        others without it begins anew, too. OSError."""
        files = self.files
        for part in (files.log, files.wheel, files.checkpoint):
            part.close()
        kept = ", ".join(set_aside(path) for path in (self._log, self._wheel, self._checkpoint))
        files.log = TimerLog(self._log, self._options.timer_log_file_bytes)
        files.wheel = TimerWheel(self._wheel, self._options.timer_precision_ms)
        files.checkpoint = TimerCheckpoint(self._checkpoint)
        return kept

    def keep_names(self) -> None:
        """The names of new files are on the disk when it returns: a power cut leaves a check point. OSError."""
        for folder in (self._root, self._checkpoint.parent):
            fsync_dir(str(folder))

    def _opened_log(self) -> TimerLog:
        """What is no row of files is set aside; an empty log is shorter than its check point says, which tells."""
        with contextlib.suppress(TimerLogDamaged):
            return TimerLog(self._log, self._options.timer_log_file_bytes)
        log.error("%s is no timer log; kept as %s", self._log, set_aside(self._log))
        return TimerLog(self._log, self._options.timer_log_file_bytes)
