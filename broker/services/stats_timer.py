"""StatsTimer: samples the statistics every second, every 10 s and at midnight. Loop thread."""

import asyncio
import datetime

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.stats import Stats

SAMPLE_EVERY = 10


class StatsTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats, clock: Clock) -> None:
        self._loop = loop
        self._stats = stats
        self._clock = clock
        self._ticks = 0
        self._day = self._today()
        self._timer = loop.call_later(1, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _today(self) -> datetime.date:
        return datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone().date()

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        self._stats.tick(now_ms)
        if self._ticks % SAMPLE_EVERY == 0:
            self._stats.sample(now_ms)
        self._ticks += 1
        if self._day != self._today():
            self._day = self._today()
            self._stats.morning()
        self._timer = self._loop.call_later(1, self._tick)
