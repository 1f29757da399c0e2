"""Opening: the timer's files opened, and set aside when they cannot be used. Loop thread, at start."""

import contextlib
import logging
from pathlib import Path

from firearrow._native.store.files.directory_sync import fsync_dir
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.options import Options
from firearrow.broker.life.timers.check import TimerCheckpoint
from firearrow.broker.life.timers.clockwork import TimerFiles
from firearrow.broker.life.timers.log import TimerLog, TimerLogDamaged
from firearrow.broker.life.timers.wheel import TimerWheel
from firearrow.broker.tables.config_file import set_aside

log = logging.getLogger("firearrow.timers")


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
            TimerWheel(self._wheel, options.timer_precision_ms), timer_log, TimerCheckpoint(self._checkpoint), clock
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
