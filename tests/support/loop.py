"""ManualLoop: what services use of an event loop; callbacks run only when a test advances time."""

import heapq
import itertools
from collections.abc import Callable

from tests.support.clock import ManualClock


class TimerHandle:
    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)


class ManualLoop:
    """`run` advances the clock from timer to timer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._clock()

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        timer = TimerHandle(callback, args)
        at = self._clock.monotonic_ms() + max(seconds, 0) * 1000
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: object) -> TimerHandle:
        return self.call_later(0, callback, *args)

    def run(self, for_ms: int = 0) -> None:
        """Run everything that is due within `for_ms`, in order."""
        until = self._clock.monotonic_ms() + for_ms
        while self._timers and self._timers[0][0] <= until:
            self.step()
        self._clock.advance(max(0, until - self._clock.monotonic_ms()))

    def step(self) -> None:
        """Run the next callback alone, if there is any."""
        if not self._timers:
            return
        at, _, timer = heapq.heappop(self._timers)
        self._clock.advance(max(0, int(-(-at // 1)) - self._clock.monotonic_ms()))
        timer.run()

    def take_callbacks(self) -> list[TimerHandle]:
        """Everything that was scheduled, in order; the loop forgets it."""
        timers, self._timers = sorted(self._timers, key=lambda timer: timer[:2]), []
        return [timer for _, _, timer in timers]
