"""ManualClock: a clock that moves only when a test moves it, for broker, client and Spark tools."""

from firearrow.broker.base.clock import Clock

NOW_MS = 1_700_000_000_000


class ManualClock(Clock):
    """A `Clock` of the broker; called, it returns seconds, as clients and Spark tools need them.

    With `step_ms` each reading is that much later than the previous one.
    """

    def __init__(self, now_ms: float = NOW_MS, *, step_ms: float = 0) -> None:
        self._began_ms = now_ms
        self._now_ms = now_ms
        self._step_ms = step_ms
        self._set_by_ms = 0

    def now_ms(self) -> int:
        self._now_ms += self._step_ms
        return int(self._now_ms) + self._set_by_ms

    def monotonic_ms(self) -> int:
        self._now_ms += self._step_ms
        return int(self._now_ms)

    def __call__(self) -> float:
        self._now_ms += self._step_ms
        return self.now

    @property
    def now(self) -> float:
        """Monotonic seconds; reading them takes no time."""
        return self._now_ms / 1000

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return (self._now_ms - self._began_ms) / 1000

    def advance(self, by_ms: float) -> None:
        self._now_ms += by_ms

    def advance_to(self, ms: float) -> None:
        self._now_ms = ms

    def sleep(self, seconds: float) -> None:
        """In place of time.sleep."""
        assert seconds > 0
        self.advance(seconds * 1000)

    def set_by(self, by_ms: int) -> None:
        """Sets the wall clock; monotonic time is not affected."""
        self._set_by_ms += by_ms
