"""Pops that wait, under a told clock: who is woken by what, deadlines, bounds; and a pop whose write fails."""

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest

from firearrow._native.store.segment import fail_next, heal
from firearrow.broker.clock import ManualClock
from firearrow.broker.config import Config
from firearrow.broker.filters.selection import Selection
from firearrow.broker.life.journal import Kind
from firearrow.broker.life.pop.holds import ANY_QUEUE, HeldPop, PopHolds
from firearrow.broker.life.pop.orders import ConsumerOrders
from firearrow.broker.life.pop.popping import Popped, Popping, Wanted
from firearrow.broker.options import Options
from firearrow.broker.stats import Stats
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.broker.peers import RecordedPeer
from tests.life.room import ManualLoop, Room


class Waiting:
    """Pops of group G that wait; `ran` has the name of each that was tried again, `!` behind it at its deadline."""

    def __init__(self, most: int = 100, most_of_place: int = 100) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.timers = ManualLoop(self.clock)
        loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.holds = PopHolds(loop, self.clock, lambda: most, lambda: most_of_place)
        self.ran: list[str] = []
        self.again: set[str] = set()

    def hold(
        self,
        name: str,
        queue_id: int = ANY_QUEUE,
        topic: str = "T",
        ms: int = 10_000,
        peer: RecordedPeer | None = None,
    ) -> bool:
        """Those in `again` wait once more when they are tried before their deadline."""
        at = peer or RecordedPeer()

        def tried(final: bool) -> None:
            self.ran.append(name + "!" * final)
            if name in self.again and not final:
                self.hold(name, queue_id, topic, ms, at)

        return self.holds.add(HeldPop((topic, "G", queue_id), at, self.clock.now_ms() + ms, tried))


@pytest.fixture
def room() -> Waiting:
    return Waiting()


def test_news_wakes_one_of_the_queue_and_one_of_all(room: Waiting) -> None:
    for name, queue_id in (("all", -1), ("all too", -1), ("q0", 0), ("q0 too", 0), ("q1", 1)):
        room.hold(name, queue_id)
    room.holds.news({("T", 0), ("other", 1)})
    assert room.ran == ["all", "q0"]
    room.holds.news({("T", 0)})
    room.holds.news({("T", 0)})
    assert room.ran == ["all", "q0", "all too", "q0 too"]
    assert len(room.holds) == 1


@pytest.mark.parametrize("topic", ["%RETRY%G_T", "%RETRY%G+T"])
def test_news_of_the_retry_topic(room: Waiting, topic: str) -> None:
    room.hold("all")
    room.holds.news({(topic.replace("G", "H"), 0)})
    assert room.ran == []
    room.holds.news({(topic, 0)})
    room.holds.news({(topic, 0)})
    assert room.ran == ["all"]


def test_one_that_waits_again_stands_behind_the_others(room: Waiting) -> None:
    room.again = {"a"}
    room.hold("a")
    room.hold("b")
    for _ in range(3):
        room.holds.news({("T", 3)})
    assert room.ran == ["a", "b", "a"]


def test_deadlines_come_in_order_and_once(room: Waiting) -> None:
    room.hold("late", ms=5000)
    room.hold("early", ms=1000)
    room.timers.run(900)
    assert room.ran == []
    room.timers.run(300)
    assert room.ran == ["early!"]
    room.timers.run(60_000)
    assert room.ran == ["early!", "late!"]
    assert len(room.holds) == 0


def test_bounds(room: Waiting) -> None:
    narrow = Waiting(most=5, most_of_place=1)
    assert [narrow.hold("x", 0) for _ in range(4)] == [True, True, False, False]
    assert [narrow.hold("x", queue_id) for queue_id in (1, 2, 3, 4)] == [True, True, True, False]
    assert narrow.holds.waiting(("T", "G", 0)) == 2


def test_who_left_is_forgotten(room: Waiting) -> None:
    gone, here = RecordedPeer(), RecordedPeer()
    for name, peer in (("gone", gone), ("gone too", gone), ("here", here)):
        room.hold(name, peer=peer)
    room.holds.forget(gone)
    assert len(room.holds) == 1
    here.closed = True
    room.holds.news({("T", 0)})
    room.timers.run(20_000)
    assert room.ran == []


def test_all_are_answered_at_the_end(room: Waiting) -> None:
    for name in ("a", "b"):
        room.hold(name)
    room.holds.release_all()
    assert room.ran == ["a!", "b!"]
    assert len(room.holds) == 0


# ---- taking ----


class Taking(Room):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.offsets = ConsumerOffsets(
            self.clock, noted=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        self.delayed = 0
        self.popping = Popping(
            self.store, self.appender, self.offsets, ConsumerOrders(self.clock),
            Config(Options()), self.clock, Stats("C", self.clock.now_ms()),
        )  # fmt: skip

    def _no_timers(self, message: object) -> None:  # type: ignore[override]
        self.delayed += 1

    def pop(self, most: int) -> Popped:
        popped = Popped(self.clock.now_ms(), 0)
        wanted = Wanted("G", "T", most, 60_000, True, False, None, Selection(None, None))
        self.popping.pop(wanted, popped, "T", 0)
        return popped

    def committed(self) -> int:
        return self.offsets.committed("G", "T", 0)


def test_pops_of_a_turn_that_cannot_be_written_take_nothing(tmp_path: Path) -> None:
    """All of them go back, to where the first began."""
    room = Taking(tmp_path)
    for number in range(9):
        room.put("T", b"%d" % number)
    room.timers.run()
    assert room.pop(2).count == 2
    room.timers.run()
    assert (room.committed(), room.delayed) == (2, 1)
    for most in (3, 1, 2):
        assert room.pop(most).count == most
        room.clock.advance(1)
    assert room.committed() == 8
    fail_next("pwrite", errno.ENOSPC)
    try:
        room.timers.run()
    finally:
        heal()
    assert room.committed() == 2


def test_one_that_fails_ends_its_connection_and_not_the_clock(
    room: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(final: bool) -> None:
        raise RuntimeError(f"a fault of one, {final}")

    first, second = RecordedPeer(), RecordedPeer()
    now_ms = room.clock.now_ms()
    room.holds.add(HeldPop(("T", "G", 0), first, now_ms + 1000, fail))
    room.holds.add(HeldPop(("T", "G", 1), second, now_ms + 10_000, fail))
    room.hold("later", 2, ms=3000)
    room.holds.news({("T", 1)})
    assert (first.closed, second.closed) == (False, True)
    room.timers.run(5000)
    assert first.closed
    assert room.ran == ["later!"]
    assert "a fault of one, False" in caplog.text
    assert "a fault of one, True" in caplog.text
