"""Wheel, log and checkpoint of the timer and its two times, shared by enqueue and dequeue. Loop thread.

`read_ms` is the first slot whose delivery has not started. Messages are enqueued only into slots from
`write_ms` on, which is never before `read_ms`, so a slot that is being delivered does not grow.

`TimerFolder` opens the files at start and renames those that cannot be used.
"""

import contextlib
import logging
import shutil
from pathlib import Path

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.store.log.timer_layout import SLOTS
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.options import Options
from firearrow.broker.tables.config_file import set_aside
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.log import TimerLog, TimerLogDamaged
from firearrow.broker.timers.wheel import BLANK_SLOTS, TimerWheel

log = logging.getLogger("firearrow.timers")

BACK_SLOTS_MAX = 36_000
"""If the clock is set back further, the timer waits for it; new messages are due at once."""


class TimerFiles:
    def __init__(
        self, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpoint, clock: Clock
    ) -> None:
        self.wheel = wheel
        self.log = timer_log
        self.checkpoint = checkpoint
        self.read_ms = checkpoint.read_ms
        self.flushed_position = checkpoint.flushed
        """The log position up to which wheel and checkpoint are complete; saved as `flushed`."""
        self._clock = clock

    def current_slot_ms(self) -> int:
        """The current slot."""
        return self._clock.now_ms() // self.wheel.step_ms * self.wheel.step_ms

    def write_ms(self) -> int:
        """The first slot that accepts messages."""
        return max(self.current_slot_ms(), self.read_ms)

    def last_slot_ms(self) -> int:
        """The last slot that accepts messages: after it the wheel may still hold undelivered slots."""
        return self.read_ms + (SLOTS - BLANK_SLOTS) * self.wheel.step_ms

    def check_clock(self) -> None:
        """If the clock was set back, clear the slots since then, which are due again. Raises OSError."""
        current_slot_ms, step_ms = self.current_slot_ms(), self.wheel.step_ms
        if current_slot_ms >= self.read_ms or self.read_ms - current_slot_ms > BACK_SLOTS_MAX * step_ms:
            return
        log.info("the system clock was set back by %d ms", self.read_ms - current_slot_ms)
        for time_ms in range(current_slot_ms, self.read_ms, step_ms):
            self.wheel.clear(time_ms)
        self.read_ms = self.checkpoint.read_ms = current_slot_ms
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write the checkpoint. Raises OSError."""
        self.checkpoint.write_checkpoint(self._clock.now_ms())
        self.flushed_position = self.log.end


class TimerFolder:
    """The paths of the three files in the store at `root`; `files` has them open."""

    def __init__(self, root: Path, options: Options, clock: Clock) -> None:
        self._root = root
        self._options = options
        (root / "config").mkdir(exist_ok=True)
        self._wheel, self._log, self._checkpoint = (
            root / "timerwheel",
            root / "timerlog",
            root / "config" / "timercheck",
        )
        timer_log = self._open_log()
        self.files = TimerFiles(
            TimerWheel(self._wheel, options.timer_precision_ms),
            timer_log,
            TimerCheckpoint(self._checkpoint),
            clock,
        )

    def reset(self, *, keep: bool) -> str:
        """Create three empty files; return the new names of the old ones, which are deleted without `keep`. Raises
        OSError.

        The log goes first: a start that finds the others without it rebuilds as well.
        """
        files = self.files
        for file in (files.log, files.wheel, files.checkpoint):
            file.close()
        kept = ""
        if keep:
            kept = ", ".join(set_aside(path) for path in (self._log, self._wheel, self._checkpoint))
        else:
            shutil.rmtree(self._log)
            self._wheel.unlink()
            self._checkpoint.unlink()
        files.log = TimerLog(self._log, self._options.timer_log_file_bytes)
        files.wheel = TimerWheel(self._wheel, self._options.timer_precision_ms)
        files.checkpoint = TimerCheckpoint(self._checkpoint)
        return kept

    def sync_names(self) -> None:
        """Sync the folders, so that a checkpoint exists after a power cut. Raises OSError."""
        for folder in (self._root, self._checkpoint.parent):
            fsync_dir(str(folder))

    def _open_log(self) -> TimerLog:
        """Open the log; if its files do not follow each other, rename it and open an empty one.

        An empty log is shorter than the checkpoint states, so the start then rebuilds it.
        """
        with contextlib.suppress(TimerLogDamaged):
            return TimerLog(self._log, self._options.timer_log_file_bytes)
        log.error("%s is not a timer log; it is kept as %s", self._log, set_aside(self._log))
        return TimerLog(self._log, self._options.timer_log_file_bytes)
