"""Openings: queues that what was popped in order blocks until a time; who waits for them is told then, without news.

Never tells early: a timer of the loop may run a millisecond before its time, and the wall clock, of which the times
are, may have been set back meanwhile. Loop thread.
"""

import asyncio
from collections.abc import Callable

from firearrow.broker.base.clock import Clock
from firearrow.broker.life.pop.holds import Place


class OrderUnlockTimer:
    """`opened(place)` runs once for each time given to `at`, unless a later call gave that place another one."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, opened: Callable[[Place], None], count_max: int
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._opened = opened
        self._count_max = count_max
        self._timers: dict[Place, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def at(self, place: Place, at_ms: int) -> None:
        """Past the most places nobody is told: who waits tries again at his deadline."""
        before = self._timers.pop(place, None)
        if before is not None:
            before.cancel()
        if len(self._timers) < self._count_max:
            self._arm(place, at_ms)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, place: Place, at_ms: int) -> None:
        seconds = max(at_ms - self._clock.now_ms(), 0) / 1000
        self._timers[place] = self._loop.call_later(seconds, self._due, place, at_ms)

    def _due(self, place: Place, at_ms: int) -> None:
        del self._timers[place]
        if self._clock.now_ms() < at_ms:
            self._arm(place, at_ms)
        else:
            self._opened(place)
