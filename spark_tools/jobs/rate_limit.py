"""A token bucket that keeps a task below its share of a rate. Clock and pause are passed in. One thread."""

import time
from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 0.25
"""Maximum burst, as seconds of the rate."""


@dataclass(slots=True)
class TokenBucket:
    """`rate` a second, None: no limit. `acquire` may overdraw; the next call waits for it."""

    rate: float | None
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    level: float = 0.0
    at: float | None = None

    def acquire(self, amount: float) -> None:
        """Wait until the level is not negative, then take `amount`."""
        if self.rate is None:
            return
        if self.at is None:
            self.level, self.at = self.rate * BURST_S, self.clock()
        self._fill(self.rate)
        if self.level < 0:
            self.pause(-self.level / self.rate)
            self._fill(self.rate)
        self.level -= amount

    def _fill(self, rate: float) -> None:
        now = self.clock()
        self.level = min(rate * BURST_S, self.level + (now - (self.at or now)) * rate)
        self.at = now


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Messages and bytes a second, of all tasks together; None: no limit."""

    messages: float | None = None
    bytes: float | None = None

    def shared(self, tasks: int) -> "RateLimits":
        """The share of each of `tasks` concurrent tasks."""
        return RateLimits(
            None if self.messages is None else self.messages / tasks,
            None if self.bytes is None else self.bytes / tasks,
        )


UNLIMITED = RateLimits()
