"""PullHoldService: a held pull runs once more, on a matching arrival or at its deadline; never if its peer is gone."""

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import count

import pytest

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import HeldCallback, PullHoldService
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


class Pulls:
    """Makes held pulls and counts how often each ran."""

    def __init__(self, hold_service: PullHoldService, clock: ManualClock) -> None:
        self.hold_service = hold_service
        self.clock = clock
        self.ran: list[str] = []
        self.unwanted: set[str] = set()

    def hold(
        self, name: str, queue: tuple[str, int] = ("T", 0), peer: RecordedPeer | None = None, ms: int = 15_000
    ) -> bool:
        return self.hold_service.add(
            HeldCallback(
                queue,
                peer or RecordedPeer(),
                self.clock.monotonic_ms() + ms,
                has_match=lambda: name not in self.unwanted,
                run_again=lambda: self.ran.append(name),
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
    return Pulls(PullHoldService(loop, clock, 3), clock)


def test_an_arrival_in_its_queue_wakes_a_pull_once(pulls: Pulls) -> None:
    pulls.hold("a")
    pulls.hold("b", ("T", 1))
    ArrivalNotifier(pulls.hold_service)({("T", 0), ("other", 0)})
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert pulls.ran == ["a"]
    assert len(pulls.hold_service) == 1


def test_a_pull_whose_tags_do_not_match_stays_held(pulls: Pulls) -> None:
    pulls.unwanted.add("a")
    pulls.hold("a")
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert pulls.ran == []
    pulls.unwanted.clear()
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert pulls.ran == ["a"]


def test_a_deadline_answers_within_two_tenths_of_a_second(
    pulls: Pulls, loop: asyncio.AbstractEventLoop
) -> None:
    pulls.hold("early", ms=1_000)
    pulls.hold("late", ms=5_000)
    for passed_ms, ran in ((900, []), (300, ["early"]), (3_000, ["early"]), (1_000, ["early", "late"])):
        pulls.clock.advance(passed_ms)
        pulls.hold_service.tick()
        assert pulls.ran == ran
    assert len(pulls.hold_service) == 0


def test_held_pulls_are_bounded(pulls: Pulls) -> None:
    assert [pulls.hold(str(n)) for n in range(4)] == [True, True, True, False]


def test_pulls_of_a_closed_connection_are_dropped(pulls: Pulls) -> None:
    peer = RecordedPeer()
    pulls.hold("gone", peer=peer)
    pulls.hold("gone too", ("U", 3), peer=peer)
    pulls.hold("stays")
    peer.close()
    assert len(pulls.hold_service) == 1
    ArrivalNotifier(pulls.hold_service)({("T", 0), ("U", 3)})
    assert pulls.ran == ["stays"]


def test_a_pull_held_again_while_it_runs_waits_for_the_next_arrival(pulls: Pulls) -> None:
    peer = RecordedPeer()
    times = []

    def run_again() -> None:
        times.append(1)
        pulls.hold_service.add(
            HeldCallback(("T", 0), peer, 10**15, has_match=lambda: True, run_again=run_again)
        )

    pulls.hold_service.add(HeldCallback(("T", 0), peer, 10**15, has_match=lambda: True, run_again=run_again))
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert len(times) == 1
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert len(times) == 2


def test_stopping_answers_all(pulls: Pulls) -> None:
    pulls.hold("a")
    pulls.hold("b", ("U", 1))
    pulls.hold_service.release_all()
    assert sorted(pulls.ran) == ["a", "b"]
    assert len(pulls.hold_service) == 0


def fail() -> bool:
    raise RuntimeError("a fault of one")


@pytest.mark.parametrize("has_match", [fail, lambda: True])
def test_one_that_fails_ends_its_connection_and_the_others_are_answered(
    pulls: Pulls, has_match: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    peer = RecordedPeer()
    pulls.hold_service.add(HeldCallback(("T", 0), peer, 10**15, has_match=has_match, run_again=fail))
    pulls.hold("after it")
    ArrivalNotifier(pulls.hold_service)({("T", 0)})
    assert peer.closed
    assert pulls.ran == ["after it"]
    assert len(pulls.hold_service) == 0
    assert "a fault of one" in caplog.text


def test_one_that_fails_at_its_deadline_does_not_stop_the_others(
    pulls: Pulls, loop: asyncio.AbstractEventLoop
) -> None:
    peer = RecordedPeer()
    pulls.hold_service.add(
        HeldCallback(("T", 0), peer, pulls.clock.monotonic_ms() + 100, has_match=lambda: True, run_again=fail)
    )
    pulls.hold("later", ms=300)
    pulls.clock.advance(1000)
    loop.run_until_complete(asyncio.sleep(0.3))
    assert peer.closed
    assert pulls.ran == ["later"]


@pytest.mark.alone
@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this Python cannot let allocations fail")
def test_every_allocation_of_a_hold_may_fail(loop: asyncio.AbstractEventLoop) -> None:
    """A pull that could not be held is in no list; arrivals and deadlines of the others go on."""
    testcapi = import_module("_testcapi")
    clock = ManualClock()
    pulls, names, failed = Pulls(PullHoldService(loop, clock, 1000), clock), count(), 0
    for number in range(60):
        peer, other = RecordedPeer(), RecordedPeer()
        before = len(pulls.hold_service)
        held = HeldCallback(
            ("T", number % 3),
            peer,
            clock.monotonic_ms() + number,
            has_match=lambda: True,
            run_again=lambda: None,
        )
        testcapi.set_nomemory(number % 20, number % 20 + 1)
        try:
            pulls.hold_service.add(held)
        except MemoryError:
            testcapi.remove_mem_hooks()
            failed += 1
            assert len(pulls.hold_service) == before
        testcapi.remove_mem_hooks()
        del held
        name = str(next(names))
        pulls.hold(name, ("T", number % 3), other)
        if number % 2:
            peer.close()
        ArrivalNotifier(pulls.hold_service)({("T", number % 3)})
        assert pulls.ran[-1] == name
        assert len(pulls.hold_service) == 0
        clock.advance(100)
        pulls.hold_service.tick()
    assert failed > 3
