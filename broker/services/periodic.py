"""Periodic: small jobs that come back, each every so many seconds. A job that fails is logged and comes back.

Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("firearrow.periodic")


class Periodic:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def every(self, seconds: float, job: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[job] = self._loop.call_later(seconds, run)
            try:
                job()
            except Exception:
                log.exception("a periodic job failed")

        self._timers[job] = self._loop.call_later(seconds, run)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
