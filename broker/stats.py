"""Stats: what was put and got, per topic, group and broker, over a minute, an hour and a day.

Sampled by a service (`sample` every 10 s, `tick` every second); adding is two additions. Loop thread.
"""

from collections import deque
from typing import NamedTuple

ITEMS_MAX = 100_000
"""Counters beyond this many keys are not made: a flood of names costs no memory."""

MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25
HOUR_EVERY, DAY_EVERY = 60, 360
"""In samples of 10 s: the hour's ring is fed every 10 minutes, the day's every hour."""

SECONDS_KEPT = 601


class Sample(NamedTuple):
    at_ms: int
    value: int
    times: int


class Window(NamedTuple):
    """One ring's sum, rate a second, and value for each time."""

    sum: int
    tps: float
    avgpt: float


class Counter:
    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.minute: deque[Sample] = deque(maxlen=MINUTE_SAMPLES)
        self.hour: deque[Sample] = deque(maxlen=HOUR_SAMPLES)
        self.day: deque[Sample] = deque(maxlen=DAY_SAMPLES)


def window(ring: deque[Sample]) -> Window:
    if len(ring) < 2 or ring[-1].at_ms == ring[0].at_ms:
        return Window(0, 0.0, 0.0)
    first, last = ring[0], ring[-1]
    value, times = last.value - first.value, last.times - first.times
    return Window(value, value * 1000 / (last.at_ms - first.at_ms), value / times if times else 0.0)


class Totals(NamedTuple):
    at_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class Stats:
    def __init__(self, cluster_name: str, now_ms: int) -> None:
        self.cluster_name = cluster_name
        self.started_ms = now_ms
        self.put_times = 0
        self.put_bytes = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_transferred = 0
        self._counters: dict[tuple[str, str], Counter] = {}
        self._samples = 0
        self._seconds: deque[Totals] = deque(maxlen=SECONDS_KEPT)
        self._mornings: deque[tuple[int, int]] = deque([(0, 0), (0, 0)], maxlen=2)
        self.tick(now_ms)

    # ---- what happened ----

    def put(self, topic: str, messages: int, size: int, requests: int = 1) -> None:
        """So many messages came with so many requests."""
        self.put_times += messages
        self.put_bytes += size
        self._add("TOPIC_PUT_NUMS", topic, messages, requests)
        self._add("TOPIC_PUT_SIZE", topic, size, requests)
        self._add("BROKER_PUT_NUMS", self.cluster_name, messages, requests)

    def got(self, group: str, topic: str, messages: int, size: int) -> None:
        key = f"{topic}@{group}"
        self.get_found += 1
        self.get_transferred += messages
        self._add("GROUP_GET_NUMS", key, messages, 1)
        self._add("GROUP_GET_SIZE", key, size, 1)
        self._add("BROKER_GET_NUMS", self.cluster_name, messages, 1)

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        counter = self._counters.get((name, key))
        if counter is None:
            if len(self._counters) >= ITEMS_MAX:
                return
            counter = self._counters[name, key] = Counter()
        counter.value += value
        counter.times += times

    def forget(self, topic: str) -> None:
        """The topic is deleted: so are its counters."""
        for name, key in [k for k in self._counters if k[1] == topic or k[1].startswith(topic + "@")]:
            del self._counters[name, key]

    # ---- sampling ----

    def sample(self, now_ms: int) -> None:
        """Every 10 s."""
        for counter in self._counters.values():
            sample = Sample(now_ms, counter.value, counter.times)
            counter.minute.append(sample)
            if self._samples % HOUR_EVERY == 0 or not counter.hour:
                counter.hour.append(sample)
            if self._samples % DAY_EVERY == 0 or not counter.day:
                counter.day.append(sample)
        self._samples += 1

    def tick(self, now_ms: int) -> None:
        """Every second."""
        self._seconds.append(
            Totals(now_ms, self.put_times, self.get_found, self.get_missed, self.get_transferred)
        )

    def morning(self) -> None:
        """At midnight: today's totals become yesterday's."""
        self._mornings.append((self.put_times, self.get_transferred))

    # ---- reading ----

    def view(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """Minute, hour and day of one counter; None if nothing was ever counted there."""
        counter = self._counters.get((name, key))
        if counter is None:
            return None
        return window(counter.minute), window(counter.hour), window(counter.day)

    def group_tps(self, group: str, topic: str) -> float:
        counter = self._counters.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return window(counter.minute).tps if counter else 0.0

    def topic_tps(self, topic: str) -> float:
        counter = self._counters.get(("TOPIC_PUT_NUMS", topic))
        return window(counter.minute).tps if counter else 0.0

    def rates(self, seconds: int) -> Totals:
        """Rates a second over the last `seconds`, as far as they are known (`at_ms` is the span)."""
        last = self._seconds[-1]
        first = self._seconds[max(len(self._seconds) - 1 - seconds, 0)]
        span = max(last.at_ms - first.at_ms, 1)
        return Totals(span, *(a - b for a, b in zip(last[1:], first[1:], strict=True)))

    @property
    def mornings(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(put, got) totals of yesterday's and of this morning."""
        return self._mornings[0], self._mornings[1]
