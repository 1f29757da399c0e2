"""Time is passed in: logic never reads the wall clock itself."""

from firearrow._native.base.clock import Clock

__all__ = ["Clock", "ManualClock"]


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
