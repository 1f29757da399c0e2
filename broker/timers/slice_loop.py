"""Work in slices, one per pass of the event loop, so that nothing else waits for long. Loop thread.

A failed slice is tried again after `RETRY_S`; of consecutive failures only the first is logged.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from firearrow._native.store.message_store import PutRefused
from firearrow.broker.append.appender import Appender

log = logging.getLogger("firearrow.timers")

RETRY_S = 0.5


class SliceLoop(ABC):
    """`failed`: the text to log when a slice fails."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: str) -> None:
        self._loop = loop
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._running = False
        self._failing = False

    def start(self) -> None:
        self._running = True
        self.run()

    def stop(self) -> None:
        self._running = False
        self._disarm()

    def run(self) -> None:
        """Run one slice now, unless messages of the last one are not durable yet."""
        self._disarm()
        if self._busy or not self._running:
            return
        try:
            self._slice()
            self._failing = False
        except (OSError, PutRefused) as error:
            if not self._failing:
                log.info("%s: %s", self._failed, error)
            self._failing = True
            self._arm(RETRY_S)

    @abstractmethod
    def _slice(self) -> None:
        """Do one slice and schedule the next one. Raises OSError, PutRefused."""

    def _when_stored(self, appender: Appender, end: int, done: Callable[[], None]) -> None:
        """Run no slice until the log is durable up to `end`.

        Then call `done`, or if that failed, retry the slice.
        """

        def on_durable(durable: bool) -> None:
            self._busy = False
            if durable:
                done()
            else:
                self._arm(RETRY_S)

        self._busy = True
        appender.on_durable(end, on_durable)

    def _arm(self, seconds: float) -> None:
        if self._running and self._timer is None:
            self._timer = self._loop.call_later(seconds, self.run)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
