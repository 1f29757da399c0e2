"""TestRocketMQBroker: the broker in memory, and its assertions in front of a real one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from faststream import FastStream, TestApp
from faststream.exceptions import SubscriberNotFound
from pydantic import BaseModel, ValidationError

from firearrow.client import MessageRefused
from firearrow.client.integrations.faststream import (
    RocketMQBroker,
    RocketMQMessage,
    RocketMQPublisher,
    RocketMQRoute,
    RocketMQRouter,
    TestRocketMQBroker,
)
from tests.client.conftest import unique
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


class Order(BaseModel):
    name: str
    count: int = 1


def shop(orders: str, done: str, name_server: str = "nowhere:1") -> tuple[RocketMQBroker, Any, Any]:
    broker = RocketMQBroker(name_server, group=unique("shop"), logger=None)
    publisher = broker.publisher(done)

    @publisher
    @broker.subscriber(orders)
    async def handle(order: Order) -> int:
        return order.count * 2

    return broker, handle, publisher


@pytest.mark.parametrize("with_real", [False, True], ids=["memory", "real"])
async def test_calls_are_asserted(name_server: str, topics: Topics, with_real: bool) -> None:
    orders, done = topics(), topics()
    broker, handle, publisher = shop(orders, done, name_server)
    async with TestRocketMQBroker(broker, with_real=with_real):
        await broker.publish(Order(name="book", count=2), orders)
        await handle.wait_call(20)
        await eventually_async(lambda: publisher.mock.called)
        await handle.assert_called_once_with({"name": "book", "count": 2})
        await publisher.assert_called_once_with(4)


async def test_an_error_reaches_the_publisher_in_memory() -> None:
    broker, handle, _ = shop("orders", "done")
    async with TestRocketMQBroker(broker):
        with pytest.raises(ValidationError):
            await broker.publish({"count": 1}, "orders")
        await handle.assert_called_once_with({"count": 1})
        with pytest.raises(MessageRefused, match="bytes"):
            await broker.publish(bytes(5 << 20), "orders")
        with pytest.raises(MessageRefused, match="TIMER_DELAY_MS"):
            await broker.publish("x", "orders", headers={"TIMER_DELAY_MS": "1"})


async def test_requests_replies_and_batches_in_memory() -> None:
    broker, _, _ = shop("orders", "done")
    batches, singles, replies = list[list[int]](), list[int](), list[RocketMQMessage]()

    @broker.subscriber("numbers", group="batch", batch=True)
    async def of_batch(numbers: list[int]) -> None:
        batches.append(numbers)

    @broker.subscriber("numbers", group="single")
    async def of_one(number: int) -> None:
        singles.append(number)

    @broker.subscriber("answers")
    async def answer(message: RocketMQMessage) -> None:
        replies.append(message)

    async with TestRocketMQBroker(broker):
        assert await broker.ping(timeout=1)
        reply = await broker.request(Order(name="pen"), "orders", correlation_id="c-1")
        assert (await reply.decode(), reply.correlation_id) == (2, "c-1")
        await broker.publish_batch(1, 2, 3, topic="numbers")
        await broker.publish(4, "numbers")
        await broker.publish(Order(name="pen"), "orders", reply_to="answers", tags="t", keys=["k"])
        with pytest.raises(SubscriberNotFound):
            await broker.request("x", "unknown")
    assert (batches, singles) == ([[1, 2, 3], [4]], [1, 2, 3, 4])
    assert [message.body for message in replies] == [b"2"]


async def test_groups_tags_and_broadcasts_in_memory() -> None:
    broker = RocketMQBroker("nowhere:1", logger=None)
    found: list[str] = []

    def listen(name: str, group: str, **options: Any) -> None:
        @broker.subscriber("topic", group=group, **options)
        async def handle(body: str) -> None:
            found.append(name)

    listen("first", "one")
    listen("second", "one")
    listen("other", "two")
    listen("tagged", "three", tags="new || paid")
    listen("cache 1", "four", broadcasting=True)
    listen("cache 2", "four", broadcasting=True)
    async with TestRocketMQBroker(broker):
        await broker.publish("x", "topic")
        assert len(found) == 4
        assert set(found) - {"first", "second"} == {"other", "cache 1", "cache 2"}
        found.clear()
        await broker.publish("x", "topic", tags="paid")
        assert "tagged" in found


async def test_a_slow_handler_exceeds_the_timeout_of_a_request_in_memory() -> None:
    broker = RocketMQBroker("nowhere:1", logger=None)

    @broker.subscriber("slow")
    async def handle(body: str) -> None:
        await asyncio.sleep(60)

    async with TestRocketMQBroker(broker):
        with pytest.raises(TimeoutError):
            await broker.request("x", "slow", timeout=0.05)


async def test_routers_nest_and_declare_handlers_later() -> None:
    found: list[tuple[str, str]] = []

    async def handle(body: str, message: RocketMQMessage) -> str:
        found.append((body, message.raw_message.topic))
        return body

    publishers = [RocketMQPublisher("out", tags="made")]
    inner = RocketMQRouter("inner-", handlers=[RocketMQRoute(handle, "in", publishers=publishers)])
    outer = RocketMQRouter("outer-")
    outer.include_router(inner)
    broker = RocketMQBroker("nowhere:1", routers=[outer], logger=None)

    @broker.subscriber("outer-inner-out", tags="made")
    async def end(body: str, message: RocketMQMessage) -> None:
        found.append((body, message.raw_message.topic))

    async with TestRocketMQBroker(broker):
        await broker.publish("x", "outer-inner-in")
    assert found == [("x", "outer-inner-in"), ("x", "outer-inner-out")]


async def test_an_application_with_its_hooks() -> None:
    broker, handle, _ = shop("orders", "done")
    app, events = FastStream(broker), list[str]()

    @app.after_startup
    async def fill() -> None:
        events.append("started")
        await broker.publish(Order(name="book"), "orders")

    @app.on_shutdown
    def leave() -> None:
        events.append("stopping")

    async with TestRocketMQBroker(broker), TestApp(app):
        await handle.assert_called_once_with(Order(name="book"))
    assert events == ["started", "stopping"]
