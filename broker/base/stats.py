"""Stats: statistics of puts and gets by topic, group and broker, over a minute, an hour and a day.

A service samples them (`sample` every 10 s, `tick` every second). Code that counts elsewhere, because that is
cheaper, registers a source, which adds its counts before they are read. Loop thread.
"""

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from firearrow._native.fastpath.request_times import PutCounts
from firearrow._native.fastpath.topic_cache import Count
from firearrow.broker.base.event_counts import EventCounts

ITEMS_MAX = 100_000
"""Most counters; further names are not counted, so that a flood of names costs no memory."""

MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25
HOUR_EVERY, DAY_EVERY = 60, 360
"""In samples of 10 s: the hour's ring gets one every 10 minutes, the day's every hour."""

SECONDS_KEPT = 601


class Window(NamedTuple):
    """Sum of the values in a ring, their rate per second, and the average value per time."""

    sum: int
    tps: float
    avgpt: float


class Counter(Count):
    """A sample is three numbers in a ring (time in ms, value, times). Rings are created with the first
    sample: with many topics they are most of a topic's memory."""

    __slots__ = ("day", "hour", "minute")

    def __init__(self) -> None:
        self.minute: array[int] | None = None
        self.hour: array[int] | None = None
        self.day: array[int] | None = None

    def with_sample(self, ring: "array[int] | None", now_ms: int, samples_max: int) -> "array[int]":
        """The ring with the current sample, at most `samples_max`. All three rings share the first sample."""
        if ring is None and self.minute is not None:
            return self.minute  # created just now, with this sample
        if ring is None or len(ring) == 3:
            ring = array("q", ring or ())
        ring.append(now_ms)
        ring.append(self.value)
        ring.append(self.times)
        if len(ring) > 3 * samples_max:
            del ring[:3]
        return ring


def window(ring: "array[int] | None") -> Window:
    if ring is None or ring[-3] == ring[0]:
        return Window(0, 0.0, 0.0)
    value, times = ring[-2] - ring[1], ring[-1] - ring[2]
    return Window(value, value * 1000 / (ring[-3] - ring[0]), value / times if times else 0.0)


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
        self.events = EventCounts()
        self._counters: dict[tuple[str, str], Counter] = {}
        self._gets: dict[str, tuple[Counter, Counter]] = {}
        self._puts: dict[tuple[str, str], PutCounts] = {}
        self._samples = 0
        self._seconds: deque[Totals] = deque(maxlen=SECONDS_KEPT)
        self._mornings: deque[tuple[int, int]] = deque([(0, 0), (0, 0)], maxlen=2)
        self._sources: list[Callable[[], None]] = []
        self.tick(now_ms)

    # ---- counting ----

    def put(self, topic: str, messages: int, size: int, requests: int = 1) -> None:
        """Count stored messages, their bytes and the requests that sent them."""
        self._add("TOPIC_PUT_NUMS", topic, messages, requests)
        self._add("TOPIC_PUT_SIZE", topic, size, requests)
        self.put_all(messages, size, requests)

    def put_all(self, messages: int, size: int, requests: int) -> None:
        """Like `put`, for topics that are counted in their `counts` directly."""
        self.put_times += messages
        self.put_bytes += size
        self._add("BROKER_PUT_NUMS", self.cluster_name, messages, requests)

    def counts(self, topic: str) -> tuple[Count, Count]:
        """The topic's counters of messages and bytes, until `forget_topic`; above ITEMS_MAX unused ones."""
        return (
            self._counter("TOPIC_PUT_NUMS", topic) or Count(),
            self._counter("TOPIC_PUT_SIZE", topic) or Count(),
        )

    def put_counts(self, topic: str, message_type: str) -> PutCounts:
        """What clients sent to the topic with this type, until `forget_topic`; above ITEMS_MAX unused ones."""
        found = self._puts.get((topic, message_type))
        if found is None:
            found = PutCounts()
            if len(self._puts) < ITEMS_MAX:
                self._puts[topic, message_type] = found
        return found

    @property
    def puts(self) -> Mapping[tuple[str, str], PutCounts]:
        """(topic, message type) → what clients sent. Call `gather` first."""
        return self._puts

    @property
    def gets(self) -> Mapping[str, tuple[Counter, Counter]]:
        """`topic@group` → messages and bytes that were pulled and popped. Call `gather` first."""
        return self._gets

    def got(self, group: str, topic: str, messages: int, size: int, requests: int = 1) -> None:
        key = f"{topic}@{group}"
        self.get_found += requests
        self.get_transferred += messages
        counters = self._gets.get(key) or self._get_counters(key)
        if counters is not None:
            counters[0].value += messages
            counters[1].value += size
            counters[0].times += requests
            counters[1].times += requests
        self._add("BROKER_GET_NUMS", self.cluster_name, messages, requests)

    def _get_counters(self, key: str) -> tuple[Counter, Counter] | None:
        """None: above ITEMS_MAX."""
        nums, size = self._counter("GROUP_GET_NUMS", key), self._counter("GROUP_GET_SIZE", key)
        if nums is None or size is None:
            return None
        self._gets[key] = nums, size
        return self._gets[key]

    def missed(self, requests: int = 1) -> None:
        self.get_missed += requests

    def source(self, add_counts: Callable[[], None]) -> None:
        """Call `add_counts()` before the counters are read: it adds what was counted elsewhere."""
        self._sources.append(add_counts)

    def gather(self) -> None:
        """Add the counts of all sources."""
        for add_counts in self._sources:
            add_counts()

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        counter = self._counter(name, key)
        if counter is not None:
            counter.value += value
            counter.times += times

    def _counter(self, name: str, key: str) -> Counter | None:
        counter = self._counters.get((name, key))
        if counter is None and len(self._counters) < ITEMS_MAX:
            counter = self._counters[name, key] = Counter()
        return counter

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic and of its groups; those of the broker stay."""
        self._forget(lambda key: key == topic or key.startswith(topic + "@"))
        self.events.forget("topic", topic)
        for key in [key for key in self._puts if key[0] == topic]:
            del self._puts[key]

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key.endswith("@" + group))
        self.events.forget("consumer_group", group)

    def _forget(self, is_gone: Callable[[str], bool]) -> None:
        self.gather()
        for name, key in list(self._counters):
            if not name.startswith("BROKER_") and is_gone(key):
                del self._counters[name, key]
                self._gets.pop(key, None)

    # ---- sampling ----

    def sample(self, now_ms: int) -> None:
        """Take a sample; called every 10 s."""
        self.gather()
        hourly, daily = self._samples % HOUR_EVERY == 0, self._samples % DAY_EVERY == 0
        for counter in self._counters.values():
            counter.minute = counter.with_sample(counter.minute, now_ms, MINUTE_SAMPLES)
            if hourly or counter.hour is None:
                counter.hour = counter.with_sample(counter.hour, now_ms, HOUR_SAMPLES)
            if daily or counter.day is None:
                counter.day = counter.with_sample(counter.day, now_ms, DAY_SAMPLES)
        self._samples += 1

    def tick(self, now_ms: int) -> None:
        """Record the totals; called every second."""
        self.gather()
        self._seconds.append(
            Totals(now_ms, self.put_times, self.get_found, self.get_missed, self.get_transferred)
        )

    def morning(self) -> None:
        """Start a new day; called at midnight."""
        self._mornings.append((self.put_times, self.get_transferred))

    # ---- reading ----

    def view(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """Minute, hour and day of one counter; None if there is none."""
        self.gather()
        counter = self._counters.get((name, key))
        if counter is None:
            return None
        return window(counter.minute), window(counter.hour), window(counter.day)

    def group_tps(self, group: str, topic: str) -> float:
        counter = self._counters.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return window(counter.minute).tps if counter else 0.0

    def rates(self, seconds: int) -> Totals:
        """Increases of the totals over the last `seconds`, or since the start; `at_ms` is the span in ms."""
        last = self._seconds[-1]
        first = self._seconds[max(len(self._seconds) - 1 - seconds, 0)]
        span = max(last.at_ms - first.at_ms, 1)
        return Totals(span, *(a - b for a, b in zip(last[1:], first[1:], strict=True)))

    @property
    def mornings(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The (put, got) totals at the start of yesterday and of today."""
        return self._mornings[0], self._mornings[1]
