"""Opening: the timer's files opened, and set aside when they cannot be used. Loop thread, at start."""

import contextlib
import logging
from pathlib import Path

from firearrow._native.store.names import sync_folder
from firearrow.broker.clock import Clock
from firearrow.broker.life.timers.check import TimerCheck
from firearrow.broker.life.timers.clockwork import Clockwork
from firearrow.broker.life.timers.log import TimerLog, TimerLogDamaged
from firearrow.broker.life.timers.wheel import TimerWheel
from firearrow.broker.options import Options
from firearrow.broker.tables.files import set_aside

log = logging.getLogger("firearrow.timers")


class TimerFiles:
    """Where the three lie in the store at `root`; `works` holds them open."""

    def __init__(self, root: Path, options: Options, clock: Clock) -> None:
        self._root = root
        self._options = options
        (root / "config").mkdir(exist_ok=True)
        self._wheel, self._log, self._check = (
            root / "timerwheel",
            root / "timerlog",
            root / "config" / "timercheck",
        )
        timer_log = self._opened_log()
        self.works = Clockwork(
            TimerWheel(self._wheel, options.timer_precision_ms), timer_log, TimerCheck(self._check), clock
        )

    def begin_anew(self) -> str:
        """Empty files in place of these, which are kept; their names. The log goes first: a start that finds the
        others without it begins anew, too. OSError."""
        works = self.works
        for part in (works.log, works.wheel, works.check):
            part.close()
        kept = ", ".join(set_aside(path) for path in (self._log, self._wheel, self._check))
        works.log = TimerLog(self._log, self._options.timer_log_file_bytes)
        works.wheel = TimerWheel(self._wheel, self._options.timer_precision_ms)
        works.check = TimerCheck(self._check)
        return kept

    def keep_names(self) -> None:
        """The names of new files are on the disk when it returns: a power cut leaves a check point. OSError."""
        for folder in (self._root, self._check.parent):
            sync_folder(str(folder))

    def _opened_log(self) -> TimerLog:
        """What is no row of files is set aside; an empty log is shorter than its check point says, which tells."""
        with contextlib.suppress(TimerLogDamaged):
            return TimerLog(self._log, self._options.timer_log_file_bytes)
        log.error("%s is no timer log; kept as %s", self._log, set_aside(self._log))
        return TimerLog(self._log, self._options.timer_log_file_bytes)
