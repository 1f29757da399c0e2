"""Rates of a consumer over the last minute and hour, with a manual clock."""

import pytest

from firearrow.client.diagnostics.stats import SAMPLE_S, ConsumerStats
from tests.support.clock import ManualClock

JAVA_STATUS_FIELDS = {
    "consumeFailedMsgs",
    "consumeFailedTPS",
    "consumeOKTPS",
    "consumeRT",
    "pullRT",
    "pullTPS",
}


async def after(stats: ConsumerStats, clock: ManualClock, seconds: float) -> None:
    """Advance the clock, with a sample every 10 s."""
    until = clock.now + seconds
    while clock.now < until:
        clock.advance(SAMPLE_S * 1000)
        await stats.sample()


async def test_a_minute_is_what_speeds_are_taken_over() -> None:
    clock = ManualClock(1_000_000)
    stats = ConsumerStats(clock)
    stats.pulled("T", 0)
    await after(stats, clock, 60)
    for _ in range(4):
        stats.pulled("T", 30)
    for seconds in (0.01, 0.03):
        stats.pull_took("T", seconds)
        stats.consumed("T", 2 * seconds)
    stats.succeeded("T", 60)
    stats.failed("T", 6)
    clock.advance(10_000)
    status = stats.status("T")
    assert status.pulled_per_s == pytest.approx(120 / 60)
    assert (status.pull_ms, status.consume_ms) == (pytest.approx(20), pytest.approx(40))
    assert (status.ok_per_s, status.failed_per_s) == (pytest.approx(1), pytest.approx(0.1))
    assert status.failed == 6
    await after(stats, clock, 70)
    status = stats.status("T")
    assert (status.pulled_per_s, status.pull_ms, status.ok_per_s, status.failed_per_s) == (0, 0, 0, 0)
    assert status.consume_ms == pytest.approx(40), "that of the last hour, when the minute is empty"
    assert status.failed == 6, "failures are those of the last hour"


async def test_few_messages_at_the_start_are_no_high_speed() -> None:
    clock = ManualClock(1_000_000)
    stats = ConsumerStats(clock)
    stats.pulled("T", 20)
    assert stats.status("T").pulled_per_s == pytest.approx(2)
    clock.advance(10_000)
    assert stats.status("T").pulled_per_s == pytest.approx(1)


async def test_after_an_hour_all_is_forgotten() -> None:
    clock = ManualClock(1_000_000)
    stats = ConsumerStats(clock)
    stats.failed("T", 6)
    stats.consumed("T", 0.5)
    await after(stats, clock, 3500)
    assert stats.status("T").failed == 6
    await after(stats, clock, 800)
    status = stats.status("T")
    assert (status.failed, status.consume_ms) == (0, 0)


def test_a_topic_that_never_came_has_all_zeros() -> None:
    status = ConsumerStats().status("T")
    assert set(status.json()) == JAVA_STATUS_FIELDS
    assert not any(status.json().values())
