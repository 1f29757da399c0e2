"""ConsumerStats: pull and handler statistics by topic, of the last minute and the last hour.

Operators get them with the running info (Java also logs a day). Event loop only; `sample` must be called
every 10 s.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

SAMPLE_S = 10.0


class Sample(NamedTuple):
    at_s: float
    times: int
    total: float


class WindowSum(NamedTuple):
    """The sums within a window."""

    seconds: float
    times: int
    total: float

    @property
    def per_second(self) -> float:
        return self.total / self.seconds if self.seconds > 0 else 0.0

    @property
    def mean(self) -> float:
        return self.total / self.times if self.times else 0.0


class Window:
    """The totals at the last `kept` periods of `period_s`: the window extends from the oldest sample to now.

    A new window counts as one period old, as in Java, so that a few messages do not look like a high rate.
    """

    def __init__(self, period_s: float, kept: int, now_s: float) -> None:
        self._period_s = period_s
        self._samples = deque([Sample(now_s - period_s, 0, 0)], maxlen=kept)
        self._next_s = now_s + period_s

    def sample(self, now: Sample) -> None:
        if now.at_s >= self._next_s:
            self._samples.append(now)
            self._next_s = now.at_s + self._period_s

    def until(self, now: Sample) -> WindowSum:
        first = self._samples[0]
        return WindowSum(now.at_s - first.at_s, now.times - first.times, now.total - first.total)


class StatsItem:
    """One quantity: a count and a total."""

    def __init__(self, now_s: float) -> None:
        self._times = 0
        self._total = 0.0
        self._minute = Window(SAMPLE_S, 6, now_s)
        self._hour = Window(600, 6, now_s)

    def add(self, amount: float) -> None:
        self._times += 1
        self._total += amount

    def sample(self, now_s: float) -> None:
        now = Sample(now_s, self._times, self._total)
        for window in (self._minute, self._hour):
            window.sample(now)

    def minute(self, now_s: float) -> WindowSum:
        return self._minute.until(Sample(now_s, self._times, self._total))

    def hour(self, now_s: float) -> WindowSum:
        return self._hour.until(Sample(now_s, self._times, self._total))


@dataclass(frozen=True, slots=True)
class ConsumeStatus:
    """Milliseconds per pull and handler call, messages per second; `failed`: failures of the last hour."""

    pull_ms: float
    pulled_per_s: float
    consume_ms: float
    ok_per_s: float
    failed_per_s: float
    failed: int

    def json(self) -> dict[str, object]:
        return {
            "consumeFailedMsgs": self.failed,
            "consumeFailedTPS": self.failed_per_s,
            "consumeOKTPS": self.ok_per_s,
            "consumeRT": self.consume_ms,
            "pullRT": self.pull_ms,
            "pullTPS": self.pulled_per_s,
        }


class _TopicStats:
    def __init__(self, now_s: float) -> None:
        self.pull_ms = StatsItem(now_s)
        self.pulled = StatsItem(now_s)
        self.consume_ms = StatsItem(now_s)
        self.succeeded = StatsItem(now_s)
        self.failed = StatsItem(now_s)

    def sample(self, now_s: float) -> None:
        for stats in (self.pull_ms, self.pulled, self.consume_ms, self.succeeded, self.failed):
            stats.sample(now_s)


class ConsumerStats:
    """`topic` is the queue's topic: a retry topic is stats separately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics: dict[str, _TopicStats] = {}

    def pull_took(self, topic: str, elapsed_s: float) -> None:
        """Count a pull that found messages."""
        self._of(topic).pull_ms.add(elapsed_s * 1000)

    def pulled(self, topic: str, messages: int) -> None:
        self._of(topic).pulled.add(messages)

    def consumed(self, topic: str, elapsed_s: float) -> None:
        """Count a handler call."""
        self._of(topic).consume_ms.add(elapsed_s * 1000)

    def succeeded(self, topic: str, messages: int) -> None:
        self._of(topic).succeeded.add(messages)

    def failed(self, topic: str, messages: int) -> None:
        self._of(topic).failed.add(messages)

    async def sample(self) -> None:
        """Move the windows. Scheduled with the instance's `every`."""
        now_s = self._clock()
        for stats in self._topics.values():
            stats.sample(now_s)

    def status(self, topic: str) -> ConsumeStatus:
        stats, now_s = self._topics.get(topic), self._clock()
        if stats is None:
            return ConsumeStatus(0.0, 0.0, 0.0, 0.0, 0.0, 0)
        consume = stats.consume_ms.minute(now_s)
        if not consume.total:
            consume = stats.consume_ms.hour(now_s)
        return ConsumeStatus(
            pull_ms=stats.pull_ms.minute(now_s).mean,
            pulled_per_s=stats.pulled.minute(now_s).per_second,
            consume_ms=consume.mean,
            ok_per_s=stats.succeeded.minute(now_s).per_second,
            failed_per_s=stats.failed.minute(now_s).per_second,
            failed=int(stats.failed.hour(now_s).total),
        )

    def _of(self, topic: str) -> _TopicStats:
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = _TopicStats(self._clock())
        return stats
