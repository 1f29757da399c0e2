"""Reports without a consumer: the order of events, listeners that fail, and a listener that never reads on."""

import asyncio
import threading

import pytest

from firearrow.client.base import reports
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.base.reports import ConnectionDown, Event, QueuesAssigned, QueuesRevoked, Reports
from tests.support.async_tests import pytest_pyfunc_call
from tests.support.eventually import eventually_async

__all__ = ["pytest_pyfunc_call"]


def queues(*numbers: int, topic: str = "orders") -> frozenset[MessageQueue]:
    return frozenset(MessageQueue(topic, "broker-a", number) for number in numbers)


async def test_changes_of_queues_are_reported_once_and_in_order() -> None:
    made, seen = Reports(Namespace("shop")), []

    async def listen(event: Event) -> None:
        seen.append(event)

    made.listen(listen)
    for now in ((0, 1), (0, 1), (1, 2), ()):
        made.assigned(queues(*now, topic="shop%orders"))
    await made.close()
    assert seen == [
        QueuesAssigned(queues(0, 1)), QueuesRevoked(queues(0)), QueuesAssigned(queues(2)), QueuesRevoked(queues(1, 2)),
    ]  # fmt: skip
    assert made.queues == frozenset()


async def test_a_plain_listener_runs_in_a_thread_and_may_raise_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, threads, other = Reports(Namespace(None)), [], []

    def fails(event: Event) -> None:
        threads.append(threading.current_thread())
        raise StopIteration

    made.listen(fails)
    made.listen(other.append)  # type: ignore[arg-type]  # returns None
    for number in range(3):
        made.emit(ConnectionDown(f"10.0.0.{number}:10911", "lost"))
    await made.close()
    assert len(threads) == 3
    assert threading.main_thread() not in threads
    assert [event.address for event in other] == [f"10.0.0.{number}:10911" for number in range(3)]
    assert caplog.text.count("a listener of events failed") == 3


async def test_events_for_a_listener_that_hangs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "WAITING_MAX", 10)
    monkeypatch.setattr(reports, "CLOSE_S", 0.01)
    made, seen, goes_on = Reports(Namespace(None)), [], asyncio.Event()

    async def hangs(event: Event) -> None:
        seen.append(event)
        await goes_on.wait()

    made.listen(hangs)
    for number in range(100):
        made.emit(ConnectionDown("10.0.0.1:10911", str(number)))
        await asyncio.sleep(0)
    assert made.last_error.value is not None
    assert "too slow" in made.last_error.value[1]
    goes_on.set()
    await eventually_async(lambda: len(seen) == 11)
    assert [event.reason for event in seen] == ["0", *(str(number) for number in range(90, 100))]
    goes_on.clear()
    made.emit(ConnectionDown("10.0.0.1:10911", "last"))
    await made.close()  # does not wait for it
