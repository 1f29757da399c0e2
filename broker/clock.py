"""Time and turns are passed in: logic never reads the wall clock itself, nor knows whose turn it is."""

from collections.abc import Callable
from typing import Protocol

from firearrow._native.wire.clocks import Clock

__all__ = ["Clock", "ManualClock", "Plans"]


class Plans(Protocol):
    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run it behind the sockets that are ready by now: the loop, or the engine that serves them."""


class ManualClock(Clock):
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
