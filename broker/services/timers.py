"""Periodic: runs jobs at fixed intervals; one that fails is logged and runs again. Loop thread."""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("firearrow.periodic_jobs")


class Periodic:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def every(self, seconds: float | Callable[[], float], job: Callable[[], None]) -> None:
        """`seconds` may be a function: it is called before each wait."""

        def wait() -> None:
            delay_s = seconds() if callable(seconds) else seconds
            self._timers[job] = self._loop.call_later(delay_s, run)

        def run() -> None:
            wait()
            try:
                job()
            except Exception:
                log.exception("a periodic job failed")

        wait()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
