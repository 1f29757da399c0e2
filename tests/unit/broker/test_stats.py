"""Stats: sums and rates over a minute, an hour and a day, in Apache's ring buffers; the number of keys is bounded."""

import inspect
import tracemalloc

import pytest

from firearrow.broker.base import stats as module
from firearrow.broker.base.stats import Stats


def test_a_counter_over_a_minute_and_an_hour() -> None:
    stats = Stats("C", 0)
    for second in range(0, 1300, 10):
        stats.put("T", 5, 500)
        stats.sample(second * 1000)
    views = stats.view("TOPIC_PUT_NUMS", "T")
    assert views is not None
    minute, hour, _ = views
    assert (minute.sum, minute.tps, minute.avgpt) == (30, 0.5, 5.0)
    assert (hour.sum, hour.tps) == (600, 0.5)
    assert stats.view("TOPIC_PUT_NUMS", "U") is None


def test_rates_of_the_last_seconds() -> None:
    stats = Stats("C", 0)
    for second in range(1, 101):
        stats.put("T", 10, 100)
        stats.tick(second * 1000)
    for seconds in (10, 60, 600):
        rate = stats.rates(seconds)
        assert rate.put * 1000 / rate.at_ms == 10


def test_deleting_a_topic_deletes_its_counters() -> None:
    stats = Stats("C", 0)
    stats.put("T", 1, 1)
    stats.got("G", "T", 1, 1)
    stats.got("G", "T2", 1, 1)
    stats.forget_topic("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("GROUP_GET_NUMS", "T2@G") is not None
    stats.forget_topic("C")
    stats.forget_group("G")
    assert stats.view("GROUP_GET_NUMS", "T2@G") is None
    assert stats.view("BROKER_PUT_NUMS", "C") is not None


def test_a_flood_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ITEMS_MAX", 10)
    stats = Stats("C", 0)
    for n in range(100):
        stats.put(f"T{n}", 1, 1)
    assert len(stats._counters) == 10
    assert stats.put_times == 100


def allocated() -> int:
    """Bytes, without those of other threads of this process."""
    own = tracemalloc.Filter(True, inspect.getfile(Stats))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces)


def test_very_many_counters_cost_little_memory() -> None:
    """As many as 20,000 topics have, after all samples of a minute, an hour and a day: they once took 250 MB."""
    stats = Stats("C", 0)
    tracemalloc.start()
    try:
        for n in range(40):
            stats.put(f"T{n}", 1000, 100_000)
        fresh = allocated()
        for n in range(26 * 360):
            stats.sample(n * 10_000)
        full = allocated()
    finally:
        tracemalloc.stop()
    assert fresh < 40 * 1500
    assert full < 40 * 4500
