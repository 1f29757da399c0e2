"""Held pops with a manual clock: what wakes which, deadlines, limits; and a pop whose write fails."""

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest

from firearrow._native.store.files.segment import fail_next, heal
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.base.stats import Stats
from firearrow.broker.pop.long_polling import ANY_QUEUE, HeldPop, PopHoldService
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.pop import PopQuery, PopResult, PopService
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.subscription_filter import EntryFilter
from tests.support.clock import ManualClock
from tests.support.harness import Harness, ManualLoop
from tests.support.peers import RecordedPeer


class PopHoldsHarness:
    """Held pops of group G; `ran` has the name of each that was retried, with `!` if at its deadline."""

    def __init__(self, count_max: int = 100, count_max_per_queue: int = 100) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.timers = ManualLoop(self.clock)
        loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.hold_service = PopHoldService(loop, self.clock, lambda: count_max, lambda: count_max_per_queue)
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
        """Those in `again` are held again if they are retried before their deadline."""
        at = peer or RecordedPeer()

        def tried(final: bool) -> None:
            self.ran.append(name + "!" * final)
            if name in self.again and not final:
                self.hold(name, queue_id, topic, ms, at)

        return self.hold_service.add(HeldPop((topic, "G", queue_id), at, self.clock.now_ms() + ms, tried))


@pytest.fixture
def harness() -> PopHoldsHarness:
    return PopHoldsHarness()


def test_an_arrival_wakes_one_pop_of_the_queue_and_one_of_all(harness: PopHoldsHarness) -> None:
    for name, queue_id in (("all", -1), ("all too", -1), ("q0", 0), ("q0 too", 0), ("q1", 1)):
        harness.hold(name, queue_id)
    harness.hold_service.messages_arrived({("T", 0), ("other", 1)})
    assert harness.ran == ["all", "q0"]
    harness.hold_service.messages_arrived({("T", 0)})
    harness.hold_service.messages_arrived({("T", 0)})
    assert harness.ran == ["all", "q0", "all too", "q0 too"]
    assert len(harness.hold_service) == 1


@pytest.mark.parametrize("topic", ["%RETRY%G_T", "%RETRY%G+T"])
def test_an_arrival_in_the_retry_topic(harness: PopHoldsHarness, topic: str) -> None:
    harness.hold("all")
    harness.hold_service.messages_arrived({(topic.replace("G", "H"), 0)})
    assert harness.ran == []
    harness.hold_service.messages_arrived({(topic, 0)})
    harness.hold_service.messages_arrived({(topic, 0)})
    assert harness.ran == ["all"]


def test_a_pop_held_again_is_after_the_others(harness: PopHoldsHarness) -> None:
    harness.again = {"a"}
    harness.hold("a")
    harness.hold("b")
    for _ in range(3):
        harness.hold_service.messages_arrived({("T", 3)})
    assert harness.ran == ["a", "b", "a"]


def test_deadlines_come_in_order_and_once(harness: PopHoldsHarness) -> None:
    harness.hold("late", ms=5000)
    harness.hold("early", ms=1000)
    harness.timers.run(900)
    assert harness.ran == []
    harness.timers.run(300)
    assert harness.ran == ["early!"]
    harness.timers.run(60_000)
    assert harness.ran == ["early!", "late!"]
    assert len(harness.hold_service) == 0


def test_bounds(harness: PopHoldsHarness) -> None:
    narrow = PopHoldsHarness(count_max=5, count_max_per_queue=1)
    assert [narrow.hold("x", 0) for _ in range(4)] == [True, True, False, False]
    assert [narrow.hold("x", queue_id) for queue_id in (1, 2, 3, 4)] == [True, True, True, False]
    assert narrow.hold_service.waiting(("T", "G", 0)) == 2


def test_pops_of_closed_connections_are_dropped(harness: PopHoldsHarness) -> None:
    gone, here = RecordedPeer(), RecordedPeer()
    for name, peer in (("gone", gone), ("gone too", gone), ("here", here)):
        harness.hold(name, peer=peer)
    harness.hold_service.forget(gone)
    assert len(harness.hold_service) == 1
    here.closed = True
    harness.hold_service.messages_arrived({("T", 0)})
    harness.timers.run(20_000)
    assert harness.ran == []


def test_all_are_answered_at_the_end(harness: PopHoldsHarness) -> None:
    for name in ("a", "b"):
        harness.hold(name)
    harness.hold_service.release_all()
    assert harness.ran == ["a!", "b!"]
    assert len(harness.hold_service) == 0


# ---- popping ----


class PopHarness(Harness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.offsets = ConsumerOffsets(
            self.clock, on_commit=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        self.delayed = 0
        self.pop_service = PopService(
            self.store,
            self.appender,
            self.offsets,
            ConsumerOrderInfo(self.clock),
            Config(Options()),
            self.clock,
            Stats("C", self.clock.now_ms()),
        )

    def _schedule(self, message: object) -> None:  # type: ignore[override]
        self.delayed += 1

    def pop(self, count_max: int) -> PopResult:
        popped = PopResult(self.clock.now_ms(), 0)
        wanted = PopQuery("G", "T", count_max, 60_000, True, False, None, EntryFilter(None, None))
        self.pop_service.pop(wanted, popped, "T", 0)
        return popped

    def committed(self) -> int:
        return self.offsets.committed("G", "T", 0)


def test_a_write_batch_that_fails_pops_nothing(tmp_path: Path) -> None:
    """All of them are rolled back to where the first began."""
    harness = PopHarness(tmp_path)
    for number in range(9):
        harness.put("T", b"%d" % number)
    harness.timers.run()
    assert harness.pop(2).count == 2
    harness.timers.run()
    assert (harness.committed(), harness.delayed) == (2, 1)
    for count_max in (3, 1, 2):
        assert harness.pop(count_max).count == count_max
        harness.clock.advance(1)
    assert harness.committed() == 8
    fail_next("pwrite", errno.ENOSPC)
    try:
        harness.timers.run()
    finally:
        heal()
    assert harness.committed() == 2


def test_one_that_fails_ends_its_connection_and_not_the_others(
    harness: PopHoldsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(final: bool) -> None:
        raise RuntimeError(f"a fault of one, {final}")

    first, second = RecordedPeer(), RecordedPeer()
    now_ms = harness.clock.now_ms()
    harness.hold_service.add(HeldPop(("T", "G", 0), first, now_ms + 1000, fail))
    harness.hold_service.add(HeldPop(("T", "G", 1), second, now_ms + 10_000, fail))
    harness.hold("later", 2, ms=3000)
    harness.hold_service.messages_arrived({("T", 1)})
    assert (first.closed, second.closed) == (False, True)
    harness.timers.run(5000)
    assert first.closed
    assert harness.ran == ["later!"]
    assert "a fault of one, False" in caplog.text
    assert "a fault of one, True" in caplog.text
