"""Arrivals: a listener gets a batch's queues if one of its topics is among them, or while others wait."""

import asyncio

import pytest

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import HeldCallback, PullHoldService, Queue
from firearrow._native.protocol import name_rules
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


@pytest.fixture
def notified() -> list[tuple[str, set[Queue]]]:
    return []


def test_a_topic_is_notified_with_all_queues_that_grew(notified: list[tuple[str, set[Queue]]]) -> None:
    arrivals = ArrivalNotifier()
    arrivals.listen(lambda queues: notified.append(("delays", queues)), topics=("SCHEDULE",))
    arrivals.listen(lambda queues: notified.append(("timers", queues)), topics=("TIMER",))
    arrivals([("T", 0), ("U", 1)])
    assert notified == []
    arrivals([("T", 0), ("SCHEDULE", 3), ("T", 0)])
    assert notified == [("delays", {("T", 0), ("SCHEDULE", 3)})]
    arrivals([("TIMER", 0), ("SCHEDULE", 1)])
    assert [name for name, _ in notified[1:]] == ["delays", "timers"]


def test_waiting_requests_are_notified_of_all_queues(notified: list[tuple[str, set[Queue]]]) -> None:
    arrivals, waiters = ArrivalNotifier(), dict[str, int]()
    arrivals.listen(lambda queues: notified.append(("pops", queues)), waiters=waiters)
    arrivals([("T", 0)])
    assert notified == []
    waiters["a client"] = 1
    arrivals({("T", 0)})
    assert notified == [("pops", {("T", 0)})]
    waiters.clear()
    arrivals([("T", 1)])
    assert len(notified) == 1


def test_held_pulls_are_notified_before_others(notified: list[tuple[str, set[Queue]]]) -> None:
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
def test_topics_in_which_services_listen_are_system_topics(topic: str) -> None:
    """The fast path takes none of them, so their queues need no notification unless a request waits."""
    assert name_rules.is_system_topic(topic)
