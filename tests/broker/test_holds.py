"""Holds: a held pull runs exactly once more, on news that it wants, at its deadline, or never when its peer is gone."""

import asyncio
from collections.abc import Iterator

import pytest

from firearrow._native.path.holds import HeldCall, Holds
from firearrow._native.path.news import News
from firearrow.broker.clock import ManualClock
from tests.broker.peers import RecordedPeer


class Pulls:
    """Makes held pulls and counts how often each ran."""

    def __init__(self, holds: Holds, clock: ManualClock) -> None:
        self.holds = holds
        self.clock = clock
        self.ran: list[str] = []
        self.unwanted: set[str] = set()

    def hold(
        self, name: str, queue: tuple[str, int] = ("T", 0), peer: RecordedPeer | None = None, ms: int = 15_000
    ) -> bool:
        return self.holds.add(
            HeldCall(
                queue,
                peer or RecordedPeer(),
                self.clock.monotonic_ms() + ms,
                wants=lambda: name not in self.unwanted,
                again=lambda: self.ran.append(name),
            )
        )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def pulls(loop: asyncio.AbstractEventLoop) -> Pulls:
    clock = ManualClock()
    return Pulls(Holds(loop, clock, 3), clock)


def test_news_of_its_queue_wakes_a_pull_once(pulls: Pulls) -> None:
    pulls.hold("a")
    pulls.hold("b", ("T", 1))
    News(pulls.holds)({("T", 0), ("other", 0)})
    News(pulls.holds)({("T", 0)})
    assert pulls.ran == ["a"]
    assert len(pulls.holds) == 1


def test_a_pull_whose_tags_do_not_match_stays(pulls: Pulls) -> None:
    pulls.unwanted.add("a")
    pulls.hold("a")
    News(pulls.holds)({("T", 0)})
    assert pulls.ran == []
    pulls.unwanted.clear()
    News(pulls.holds)({("T", 0)})
    assert pulls.ran == ["a"]


def test_a_deadline_answers_within_two_tenths_of_a_second(
    pulls: Pulls, loop: asyncio.AbstractEventLoop
) -> None:
    pulls.hold("early", ms=1_000)
    pulls.hold("late", ms=5_000)
    for passed_ms, ran in ((900, []), (300, ["early"]), (3_000, ["early"]), (1_000, ["early", "late"])):
        pulls.clock.advance(passed_ms)
        pulls.holds.tick()
        assert pulls.ran == ran
    assert len(pulls.holds) == 0


def test_there_is_room_for_so_many(pulls: Pulls) -> None:
    assert [pulls.hold(str(n)) for n in range(4)] == [True, True, True, False]


def test_pulls_of_a_closed_connection_are_dropped(pulls: Pulls) -> None:
    peer = RecordedPeer()
    pulls.hold("gone", peer=peer)
    pulls.hold("gone too", ("U", 3), peer=peer)
    pulls.hold("stays")
    peer.close()
    assert len(pulls.holds) == 1
    News(pulls.holds)({("T", 0), ("U", 3)})
    assert pulls.ran == ["stays"]


def test_a_pull_held_again_while_it_runs_waits_for_the_next_news(pulls: Pulls) -> None:
    peer = RecordedPeer()
    times = []

    def again() -> None:
        times.append(1)
        pulls.holds.add(HeldCall(("T", 0), peer, 10**15, wants=lambda: True, again=again))

    pulls.holds.add(HeldCall(("T", 0), peer, 10**15, wants=lambda: True, again=again))
    News(pulls.holds)({("T", 0)})
    assert len(times) == 1
    News(pulls.holds)({("T", 0)})
    assert len(times) == 2


def test_stopping_answers_everybody(pulls: Pulls) -> None:
    pulls.hold("a")
    pulls.hold("b", ("U", 1))
    pulls.holds.release_all()
    assert sorted(pulls.ran) == ["a", "b"]
    assert len(pulls.holds) == 0
