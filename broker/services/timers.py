"""Periodic: runs jobs at fixed intervals; one that fails is logged and runs again. `watched`: a task that ends only
by a fault. Loop thread."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

log = logging.getLogger("firearrow.periodic_jobs")


def watched(coroutine: Coroutine[object, object, None], what: str) -> asyncio.Task[None]:
    """A task that is cancelled at the stop; a fault that ends it before is logged."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s has ended: restart the broker", what, exc_info=error)

    task = asyncio.ensure_future(coroutine)
    task.add_done_callback(ended)
    return task


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
