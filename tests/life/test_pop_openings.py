"""Openings under a told clock: who waits is told once, never before its time, and also when a timer was early."""

import asyncio
from typing import cast

import pytest

from firearrow.broker.clock import ManualClock
from firearrow.broker.life.pop.holds import Place
from firearrow.broker.life.pop.openings import Openings
from tests.life.room import ManualLoop

NOW = 1_700_000_000_000
FIRST, SECOND, THIRD = (("T", "G", queue_id) for queue_id in range(3))


class Opening:
    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.timers = ManualLoop(self.clock)
        self.opened: list[tuple[Place, int]] = []
        loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.openings = Openings(loop, self.clock, self._opened, most=2)

    def _opened(self, place: Place) -> None:
        self.opened.append((place, self.clock.now_ms() - NOW))


@pytest.fixture
def room() -> Opening:
    return Opening()


def test_each_is_told_once_and_at_its_time(room: Opening) -> None:
    room.openings.at(FIRST, NOW + 4000)
    room.openings.at(SECOND, NOW - 1)
    room.timers.run(3999)
    assert room.opened == [(SECOND, 0)]
    room.timers.run(10_000)
    assert room.opened == [(SECOND, 0), (FIRST, 4000)]
    assert len(room.openings) == 0


def test_the_last_time_counts(room: Opening) -> None:
    for at_ms in (9000, 2000, 5000):
        room.openings.at(FIRST, NOW + at_ms)
    room.timers.run(60_000)
    assert room.opened == [(FIRST, 5000)]


@pytest.mark.parametrize("early_ms", [1, 700, 3_600_000])
def test_a_timer_that_runs_before_the_wall_clock_is_there(room: Opening, early_ms: int) -> None:
    """By a millisecond of rounding, or because the clock was set back."""
    room.openings.at(FIRST, NOW + 4000)
    room.clock.set_by(-early_ms)
    room.timers.run(4000 + early_ms - 1)
    assert room.opened == []
    room.timers.run(1)
    assert room.opened == [(FIRST, 4000)]


def test_more_than_the_most(room: Opening) -> None:
    for place in (FIRST, SECOND, THIRD):
        room.openings.at(place, NOW + 10)
    room.openings.at(SECOND, NOW + 20)
    room.timers.run(60_000)
    assert room.opened == [(FIRST, 10), (SECOND, 20)]


def test_nobody_is_told_behind_the_stop(room: Opening) -> None:
    room.openings.at(FIRST, NOW + 10)
    room.openings.stop()
    room.timers.run(60_000)
    assert room.opened == []
    assert len(room.openings) == 0
