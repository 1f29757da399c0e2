"""News: who listens hears of a turn's queues when one of his topics is among them, or while his crowd waits."""

import asyncio

import pytest

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import HeldCallback, PullHoldService, Queue
from firearrow.broker.tables import name_rules
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


@pytest.fixture
def heard() -> list[tuple[str, set[Queue]]]:
    return []


def test_a_topic_is_heard_of_with_all_that_has_news(heard: list[tuple[str, set[Queue]]]) -> None:
    arrivals = ArrivalNotifier()
    arrivals.listen(lambda queues: heard.append(("delays", queues)), topics=("SCHEDULE",))
    arrivals.listen(lambda queues: heard.append(("timers", queues)), topics=("TIMER",))
    arrivals([("T", 0), ("U", 1)])
    assert heard == []
    arrivals([("T", 0), ("SCHEDULE", 3), ("T", 0)])
    assert heard == [("delays", {("T", 0), ("SCHEDULE", 3)})]
    arrivals([("TIMER", 0), ("SCHEDULE", 1)])
    assert [name for name, _ in heard[1:]] == ["delays", "timers"]


def test_a_crowd_is_told_of_all_while_there_is_one(heard: list[tuple[str, set[Queue]]]) -> None:
    arrivals, waiters = ArrivalNotifier(), dict[str, int]()
    arrivals.listen(lambda queues: heard.append(("pops", queues)), waiters=waiters)
    arrivals([("T", 0)])
    assert heard == []
    waiters["somebody"] = 1
    arrivals({("T", 0)})
    assert heard == [("pops", {("T", 0)})]
    waiters.clear()
    arrivals([("T", 1)])
    assert len(heard) == 1


def test_held_pulls_hear_before_others(heard: list[tuple[str, set[Queue]]]) -> None:
    clock, order = ManualClock(), list[str]()
    loop = asyncio.new_event_loop()
    hold_service = PullHoldService(loop, clock, 1)
    held = HeldCallback(
        ("T", 0), RecordedPeer(), clock.monotonic_ms() + 1000, lambda: True, lambda: order.append("pull")
    )
    assert hold_service.add(held)
    arrivals = ArrivalNotifier(hold_service)
    arrivals.listen(lambda _: order.append("pops"), waiters=("one",))
    arrivals([("T", 0)])
    assert order == ["pull", "pops"]
    hold_service.release_all()
    loop.close()


@pytest.mark.parametrize("topic", [name_rules.SCHEDULE_TOPIC, name_rules.TIMER_TOPIC])
def test_topics_in_which_services_listen_are_the_systems_own(topic: str) -> None:
    """None of them passes the fast lane's gate, so nobody needs to be told of its queues unless somebody waits."""
    assert name_rules.is_system_topic(topic)
