"""Time and turns are passed in: logic never reads the wall clock itself, nor knows whose turn it is."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""


class Plans(Protocol):
    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run it behind the sockets that are ready by now: the loop, or the engine that serves them."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock for tests: it stands still until told."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._set_by_ms = 0

    def now_ms(self) -> int:
        return self._now_ms + self._set_by_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms

    def set_by(self, by_ms: int) -> None:
        """Somebody sets the clock; monotonic time goes on as it was."""
        self._set_by_ms += by_ms
