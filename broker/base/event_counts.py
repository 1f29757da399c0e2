"""EventCounts: counters and histograms of what happens beside plain sends and pulls, as the metrics name them.

An `Event` is a family with its label names; its series are made as they are counted, at most `series_max` of each
family: further label values share one series, whose labels are (). Loop thread.
"""

from typing import NamedTuple

from firearrow._native.base.histogram import Histogram

SERIES_MAX = 50_000
"""Apache's default of metricsOtelCardinalityLimit."""
OVERFLOW: tuple[str, ...] = ()


class Event(NamedTuple):
    """`bounds`: of a histogram's values; () for a counter. `help`: one sentence for the scrape."""

    name: str
    labels: tuple[str, ...]
    help: str
    bounds: tuple[int, ...] = ()


COUNTER = "default view for counter."
BY_TOPIC_AND_GROUP = ("consumer_group", "topic")
SENT_TO_DLQ = Event("rocketmq_send_to_dlq_messages", (*BY_TOPIC_AND_GROUP, "is_system"), COUNTER)
COMMITTED = Event("rocketmq_commit_messages", ("topic",), COUNTER)
ROLLED_BACK = Event("rocketmq_rollback_messages", ("topic",), COUNTER)
FINISH_LATENCY = Event(
    "rocketmq_finish_message_latency_milliseconds",
    ("topic",),
    "Transaction finish latency",
    (5, 60, 600, 3600, 43200, 86400),
)
"""In seconds, whatever the name states: so are Apache's bounds and values."""
TIMER_ENQUEUED = Event("rocketmq_timer_enqueue", ("topic",), COUNTER)
TIMER_DEQUEUED = Event("rocketmq_timer_dequeue", ("topic",), COUNTER)
DELAY = Event(
    "rocketmq_delay_message_latency_seconds",
    ("topic",),
    "Timer message set latency distribution",
    (60, 600, 3600, 43200, 86400, 259200),
)
REVIVE_IN = Event(
    "rocketmq_pop_revive_in_message", (*BY_TOPIC_AND_GROUP, "revive_message_type", "put_status"), COUNTER
)
REVIVE_OUT = Event(
    "rocketmq_pop_revive_out_message", (*BY_TOPIC_AND_GROUP, "queue_id", "revive_message_type"), COUNTER
)
REVIVED = Event("rocketmq_pop_revive_retry_messages", (*BY_TOPIC_AND_GROUP, "put_status"), COUNTER)
RETRIED = Event(
    "firearrow_retried_messages", ("consumer_group",), "Messages that a group got back to consume them again."
)
GIVEN_UP = Event(
    "firearrow_transactions_given_up",
    ("topic", "reason"),
    "Transactions that no producer ended, by the limit that they reached: checks, age, or deleted with their log file.",
)
REDIRECTED = Event(
    "firearrow_redirected_messages",
    ("topic", "to"),
    "Messages that were due for a queue that is not read any more, by where they went: queue, or dead letters (dlq).",
)
LOWERED = Event(
    "firearrow_lowered_delay_levels",
    ("topic",),
    "Messages with a delay level that messageDelayLevel does not have: they waited for its last level.",
)
TO_QUEUE, TO_DEAD_LETTERS = "queue", "dlq"
EVENTS = (
    SENT_TO_DLQ,
    COMMITTED,
    ROLLED_BACK,
    FINISH_LATENCY,
    TIMER_ENQUEUED,
    TIMER_DEQUEUED,
    DELAY,
    REVIVE_IN,
    REVIVE_OUT,
    REVIVED,
    RETRIED,
    GIVEN_UP,
    REDIRECTED,
    LOWERED,
)
TYPE_CHECK_POINT, TYPE_ACK, PUT_OK = "CK", "ACK", "PUT_OK"


class EventCounts:
    def __init__(self) -> None:
        self.series_max = SERIES_MAX
        self._counters: dict[Event, dict[tuple[str, ...], int]] = {event: {} for event in EVENTS}
        self._histograms: dict[Event, dict[tuple[str, ...], Histogram]] = {event: {} for event in EVENTS}
        self._in_flight: dict[tuple[str, str], int] = {}

    def add(self, event: Event, labels: tuple[str, ...], times: int = 1) -> None:
        series = self._counters[event]
        key = labels if labels in series or len(series) < self.series_max - 1 else OVERFLOW
        series[key] = series.get(key, 0) + times

    def observe(self, event: Event, labels: tuple[str, ...], value: int, times: int = 1) -> None:
        series = self._histograms[event]
        key = labels if labels in series or len(series) < self.series_max - 1 else OVERFLOW
        histogram = series.get(key)
        if histogram is None:
            histogram = series[key] = Histogram(event.bounds)
        histogram.record(value, times)

    def counted(self, event: Event) -> dict[tuple[str, ...], int]:
        """Labels → count."""
        return self._counters[event]

    def observed(self, event: Event) -> dict[tuple[str, ...], Histogram]:
        return self._histograms[event]

    def total(self, event: Event) -> int:
        return sum(self._counters[event].values())

    # ---- popped messages ----

    def popped(self, group: str, topic: str, count: int) -> None:
        """Messages were given out to be acknowledged."""
        key = (group, topic)
        if key in self._in_flight or len(self._in_flight) < self.series_max:
            self._in_flight[key] = self._in_flight.get(key, 0) + count

    def settled(self, group: str, topic: str, count: int) -> None:
        """Messages given out were acknowledged, or become visible again."""
        key = (group, topic)
        left = self._in_flight.get(key, 0) - count
        if left > 0:
            self._in_flight[key] = left
        else:
            self._in_flight.pop(key, None)

    def in_flight(self, group: str, topic: str) -> int:
        """How many popped messages are not acknowledged; those popped before the start are not counted, as in
        Apache (PopInflightMessageCounter)."""
        return self._in_flight.get((group, topic), 0)

    @property
    def all_in_flight(self) -> dict[tuple[str, str], int]:
        """(group, topic) → messages."""
        return self._in_flight

    # ---- deletion ----

    def forget(self, label: str, value: str) -> None:
        """Drop the series of a deleted topic or group. `label`: `topic` or `consumer_group`."""
        for event in EVENTS:
            if label not in event.labels:
                continue
            at = event.labels.index(label)
            for series in (self._counters[event], self._histograms[event]):
                for key in [key for key in series if key and key[at] == value]:
                    del series[key]
        at = 1 if label == "topic" else 0
        for pair in [pair for pair in self._in_flight if pair[at] == value]:
            del self._in_flight[pair]
