"""AutoRenewal with a broker that answers when the test wants."""

import asyncio
import time

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RequestTimeout
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.service_state import now_ms
from firearrow.client.pop.auto_renewal import AutoRenewal
from firearrow.client.pop.receipt_handles import NORMAL, ReceiptHandle
from tests.client.records import received
from tests.support.eventually import eventually_async

INVISIBLE_MS = 400


def popped(waited_ms: int = 0, broker: str = "broker") -> ReceivedMessage:
    [message] = received(MessageQueue("orders", broker, 0), [0])
    receipt = ReceiptHandle(0, now_ms() - waited_ms, INVISIBLE_MS, 0, NORMAL, broker, 0, 0)
    message.put_property(Property.POP_CHECK_POINT, receipt.text)
    return message


class Broker:
    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.fails = False

    async def change(self, message: ReceivedMessage, seconds: float) -> None:
        assert seconds == INVISIBLE_MS / 1000
        self.asked += 1
        await self.answers.wait()
        if self.fails:
            raise RequestTimeout("no answer")
        message.put_property("renewed", str(self.asked))


async def test_a_message_is_renewed_until_it_is_settled() -> None:
    broker = Broker()
    renewal = AutoRenewal(broker.change)
    message = popped()
    renewal.hold(message)
    await eventually_async(lambda: broker.asked >= 3)
    async with renewal.settling(message):
        pass
    asked = broker.asked
    await asyncio.sleep(2 * INVISIBLE_MS / 1000)
    assert broker.asked == asked
    assert not renewal.holds(message)


async def test_what_waited_on_the_way_is_renewed_sooner() -> None:
    broker = Broker()
    renewal = AutoRenewal(broker.change)
    started_s = asyncio.get_running_loop().time()
    renewal.hold(popped(waited_ms=INVISIBLE_MS))
    await eventually_async(lambda: broker.asked)
    assert asyncio.get_running_loop().time() - started_s < INVISIBLE_MS / 2000
    await renewal.close()


async def test_an_acknowledgement_waits_for_the_new_receipt() -> None:
    broker = Broker()
    broker.answers.clear()
    renewal = AutoRenewal(broker.change)
    message = popped()
    renewal.hold(message)
    await eventually_async(lambda: broker.asked)

    async def settle() -> str | None:
        async with renewal.settling(message):
            return message.get_property("renewed")

    settling = asyncio.create_task(settle())
    await asyncio.sleep(0.01)
    assert not settling.done()
    broker.answers.set()
    assert await settling == "1"


async def test_a_failed_acknowledgement_keeps_the_message() -> None:
    broker = Broker()
    renewal = AutoRenewal(broker.change)
    message = popped()
    renewal.hold(message)
    try:
        async with renewal.settling(message):
            raise RequestTimeout("no answer")
    except RequestTimeout:
        pass
    assert renewal.holds(message)
    await eventually_async(lambda: broker.asked >= 2)
    await renewal.close()


async def test_messages_that_cannot_be_renewed_in_time_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    broker = Broker()
    broker.fails = True
    renewal = AutoRenewal(broker.change)
    message, *others = [popped() for _ in range(20)]
    for each in (message, *others):
        renewal.hold(each)
    await eventually_async(lambda: not any(map(renewal.holds, (message, *others))))
    assert broker.asked > 2
    assert len(caplog.records) == 1, "one line for a broker, not one for each message"
    async with renewal.settling(message):  # an acknowledgement may still come in time
        pass


async def test_one_message_is_settled_twice_at_a_time() -> None:
    renewal = AutoRenewal(Broker().change)
    message, other = popped(), popped()
    renewal.hold(message)
    renewal.hold(other)
    async with asyncio.timeout(5):
        async with renewal.settling(message, other, message):
            pass
    assert not renewal.holds(message)
    assert not renewal.holds(other)


async def test_two_that_settle_the_same_messages_do_not_wait_for_each_other() -> None:
    renewal = AutoRenewal(Broker().change)
    messages = [popped(), popped()]
    for message in messages:
        renewal.hold(message)

    async def settle(order: list[ReceivedMessage]) -> None:
        async with renewal.settling(*order):
            await asyncio.sleep(0)

    async with asyncio.timeout(5), renewal.settling(messages[1]):
        first = asyncio.create_task(settle(messages))
        await asyncio.sleep(0)
        second = asyncio.create_task(settle(messages[::-1]))
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await asyncio.gather(first, second)


async def test_a_broker_that_does_not_answer_delays_no_other() -> None:
    silent, answering = Broker(), Broker()
    silent.answers.clear()

    async def change(message: ReceivedMessage, seconds: float) -> None:
        await (answering if message.get_property("other") else silent).change(message, seconds)

    renewal = AutoRenewal(change)
    for _ in range(200):
        renewal.hold(popped())
    await eventually_async(lambda: silent.asked)
    message = popped(broker="other")
    message.put_property("other", "true")
    renewal.hold(message)
    await eventually_async(lambda: answering.asked >= 3)
    assert renewal.holds(message)
    await renewal.close()


async def test_a_message_whose_time_was_over_first_is_lost() -> None:
    """The loop was blocked: other members can have the message, and a broker that renews it delivers it twice."""
    broker = Broker()
    renewal = AutoRenewal(broker.change)
    message = popped()
    renewal.hold(message)
    time.sleep(1.5 * INVISIBLE_MS / 1000)  # noqa: ASYNC251 (a handler that blocks the loop)
    await eventually_async(lambda: not renewal.holds(message))
    assert broker.asked == 0
