"""OrderUnlockTimer with a manual clock: each key is reported once, never early, also if a timer was early."""

import asyncio
from typing import cast

import pytest

from firearrow.broker.pop.long_polling import HoldKey
from firearrow.broker.pop.order_info import OrderUnlockTimer
from tests.support.clock import ManualClock
from tests.support.harness import ManualLoop

NOW = 1_700_000_000_000
FIRST, SECOND, THIRD = (("T", "G", queue_id) for queue_id in range(3))


class OrderUnlockHarness:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.timers = ManualLoop(self.clock)
        self.opened: list[tuple[HoldKey, int]] = []
        loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.unlock_timer = OrderUnlockTimer(loop, self.clock, self._opened, count_max=2)

    def _opened(self, key: HoldKey) -> None:
        self.opened.append((key, self.clock.now_ms() - NOW))


@pytest.fixture
def harness() -> OrderUnlockHarness:
    return OrderUnlockHarness()


def test_each_key_is_unlocked_once_and_at_its_time(harness: OrderUnlockHarness) -> None:
    harness.unlock_timer.at(FIRST, NOW + 4000)
    harness.unlock_timer.at(SECOND, NOW - 1)
    harness.timers.run(3999)
    assert harness.opened == [(SECOND, 0)]
    harness.timers.run(10_000)
    assert harness.opened == [(SECOND, 0), (FIRST, 4000)]
    assert len(harness.unlock_timer) == 0


def test_the_last_time_counts(harness: OrderUnlockHarness) -> None:
    for at_ms in (9000, 2000, 5000):
        harness.unlock_timer.at(FIRST, NOW + at_ms)
    harness.timers.run(60_000)
    assert harness.opened == [(FIRST, 5000)]


@pytest.mark.parametrize("early_ms", [1, 700, 3_600_000])
def test_a_timer_that_runs_before_the_wall_clock_is_there(harness: OrderUnlockHarness, early_ms: int) -> None:
    """By a millisecond of rounding, or because the clock was set back."""
    harness.unlock_timer.at(FIRST, NOW + 4000)
    harness.clock.set_by(-early_ms)
    harness.timers.run(4000 + early_ms - 1)
    assert harness.opened == []
    harness.timers.run(1)
    assert harness.opened == [(FIRST, 4000)]


def test_keys_beyond_the_limit_get_no_timer(harness: OrderUnlockHarness) -> None:
    for key in (FIRST, SECOND, THIRD):
        harness.unlock_timer.at(key, NOW + 10)
    harness.unlock_timer.at(SECOND, NOW + 20)
    harness.timers.run(60_000)
    assert harness.opened == [(FIRST, 10), (SECOND, 20)]


def test_no_key_is_unlocked_after_the_stop(harness: OrderUnlockHarness) -> None:
    harness.unlock_timer.at(FIRST, NOW + 10)
    harness.unlock_timer.stop()
    harness.timers.run(60_000)
    assert harness.opened == []
    assert len(harness.unlock_timer) == 0
