"""Publishing against a real broker: options of messages, batches, delays, replies, and what is refused."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from faststream import BaseMiddleware
from faststream.exceptions import IncorrectState

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import (
    ConsumeFromWhere,
    Message,
    MessageRefused,
    Producer,
    PushConsumer,
    PushConsumerOptions,
)
from firearrow.client.base.message import Property
from firearrow.client.integrations.faststream import RocketMQBroker, RocketMQMessage, RocketMQResponse
from tests.client.conftest import unique
from tests.integrations.faststream.conftest import started
from tests.integrations.faststream.test_acknowledgement import dead_letters
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


def collected(broker: RocketMQBroker, topic: str) -> list[RocketMQMessage]:
    """The messages of the topic, as they come."""
    found: list[RocketMQMessage] = []

    @broker.subscriber(topic, group=unique("collect"), max_workers=10)
    async def handle(message: RocketMQMessage) -> None:
        found.append(message)

    return found


async def test_a_publisher_sends_what_a_handler_returns(broker: RocketMQBroker, topics: Topics) -> None:
    """Options of the response replace those of the publisher; two publishers send it to two topics."""
    source, first, second = topics(), topics(), topics()

    @broker.subscriber(source)
    @broker.publisher(first, tags="made", headers={"by": "publisher", "of": "shop"}, keys=["default"])
    @broker.publisher(second)
    async def handle(body: str) -> RocketMQResponse:
        return RocketMQResponse(body.upper(), headers={"by": "response"}, keys=["chosen"])

    firsts, seconds = collected(broker, first), collected(broker, second)
    async with started(broker):
        await broker.publish("text", source, correlation_id="c-7")
        await eventually_async(lambda: firsts and seconds)
    [one], [two] = firsts, seconds
    assert (await one.decode(), one.messages[0].tags, one.messages[0].keys) == ("TEXT", "made", ("chosen",))
    assert (one.headers["by"], one.headers["of"], one.correlation_id) == ("response", "shop", "c-7")
    assert (await two.decode(), two.messages[0].tags) == ("TEXT", None)


async def test_a_publisher_is_an_object_too(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()
    single = broker.publisher(topic, tags="single")
    several = broker.publisher(topic, batch=True, tags="several")
    found = collected(broker, topic)
    async with started(broker):
        result = await single.publish("one", sharding_key="k")
        results = await several.publish("two", "three")
        await eventually_async(lambda: len(found) == 3)
    assert result.queue.topic == topic
    assert len(results) == 1
    assert {message.body: message.messages[0].tags for message in found} == {
        b"one": "single", b"two": "several", b"three": "several",
    }  # fmt: skip
    assert next(m for m in found if m.body == b"one").messages[0].get_property(Property.SHARDING_KEY) == "k"


async def test_a_handler_returns_a_batch(broker: RocketMQBroker, topics: Topics) -> None:
    source, target = topics(), topics()

    @broker.subscriber(source)
    @broker.publisher(target, batch=True)
    async def handle(count: int) -> list[int]:
        return list(range(count))

    found = collected(broker, target)
    async with started(broker):
        await broker.publish(3, source)
        await eventually_async(lambda: len(found) == 3)
    assert sorted(message.body for message in found) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("delay", ["delay_s", "deliver_at_ms", "delay_level"])
async def test_a_delayed_message(broker: RocketMQBroker, topics: Topics, delay: str) -> None:
    topic, times = topics(), list[float]()

    @broker.subscriber(topic)
    async def handle(body: str) -> None:
        times.append(time.time())

    values = {"delay_s": 2, "deliver_at_ms": int(time.time() * 1000) + 2000, "delay_level": 2}
    async with started(broker):
        sent = time.time()
        await broker.publish("later", topic, **{delay: values[delay]})  # type: ignore[arg-type]
        await eventually_async(lambda: times)
    assert times[0] - sent >= 1  # the broker's clock counts in whole seconds


async def test_a_large_batch_is_sent_in_several_requests(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()
    found = collected(broker, topic)
    async with started(broker):
        results = await broker.publish_batch(*(bytes(100_000) for _ in range(15)), topic=topic, tags="b")
        assert await broker.publish_batch(topic=topic) == []
        await eventually_async(lambda: len(found) == 15)
    assert len(results) == 2


async def test_request_and_reply(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()

    @broker.subscriber(topic)
    async def add(first: int, second: int) -> RocketMQResponse:
        return RocketMQResponse(first + second, headers={"by": "add"})

    publisher = broker.publisher(topic)
    async with started(broker):
        reply = await broker.request({"first": 1, "second": 2}, topic, timeout=20, correlation_id="c-1")
        assert (await reply.decode(), reply.headers["by"], reply.correlation_id) == (3, "add", "c-1")
        reply = await publisher.request({"first": 3, "second": 4}, timeout=20)
        assert await reply.decode() == 7
        replies = await asyncio.gather(
            *(broker.request({"first": n, "second": n}, topic, timeout=20) for n in range(20))
        )
        assert [await reply.decode() for reply in replies] == [2 * n for n in range(20)]


async def test_a_request_without_an_answer_times_out(broker: RocketMQBroker, topics: Topics) -> None:
    async with started(broker):
        for timeout in (0.5, 1e-9):
            with pytest.raises(TimeoutError):
                await broker.request("anyone?", topics(), timeout=timeout)


async def test_requests_cross_to_other_clients(
    broker: RocketMQBroker, name_server: str, topics: Topics
) -> None:
    """A plain producer asks a FastStream handler, and a FastStream broker asks a plain consumer."""
    ours, theirs = topics(), topics()

    @broker.subscriber(ours)
    async def double(number: int) -> int:
        return 2 * number

    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with Producer(unique("plain"), name_server=name_server) as producer, started(broker):
        consumer = PushConsumer(unique("plain"), name_server=name_server, options=options)

        @consumer.subscribe(theirs)
        async def answer(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, message.body[::-1])

        async with consumer:
            reply = await producer.request(Message(ours, b"21"), timeout_s=20)
            assert reply.body == b"42"
            back = await broker.request("abc", theirs, timeout=20)
            assert back.body == b"cba"


async def test_the_answer_to_a_reply_to_topic(broker: RocketMQBroker, topics: Topics) -> None:
    """A chain: each handler's answer goes to the topic that the message names."""
    first, second, last = topics(), topics(), topics()

    @broker.subscriber(first)
    async def start(body: str) -> str:
        return body + " first"

    @broker.subscriber(second, no_reply=True)
    @broker.publisher(last, reply_to="unused")
    async def go_on(body: str) -> str:
        return body + " second"

    found = collected(broker, last)
    async with started(broker):
        await broker.publish("begin", first, reply_to=second, correlation_id="c-9")
        await eventually_async(lambda: found)
    assert (found[0].body, found[0].correlation_id) == (b"begin first second", "c-9")
    assert found[0].reply_to == "unused"


@pytest.mark.parametrize("target", ["no topic!", "SCHEDULE_TOPIC_XXXX", "x" * 300])
async def test_a_reply_that_cannot_be_sent_does_not_call_the_handler_again(
    broker: RocketMQBroker, name_server: str, topics: Topics, target: str
) -> None:
    """Who sends a message chooses where its reply goes."""
    topic, group, called = topics(), unique("group"), []

    @broker.subscriber(topic, group=group, retry_delay_s=0)
    async def answer(body: str) -> str:
        called.append(body)
        return body

    async with started(broker):
        await broker.publish("text", topic, reply_to=target)
        (dead,) = await dead_letters(name_server, group)
    assert (dead.body, called) == (b"text", ["text"])


async def test_middlewares_see_and_change_what_is_published(broker: RocketMQBroker, topics: Topics) -> None:
    topic, seen = topics(), []

    class Middleware(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append((cmd.destination, dict(cmd.options)))
            cmd.options["tags"] = "changed"
            cmd.add_headers({"added": "yes"})
            return await call_next(cmd)

    broker.add_middleware(Middleware)
    found = collected(broker, topic)
    async with started(broker):
        await broker.publish("text", topic, tags="new")
        await eventually_async(lambda: found)
    assert (topic, {"tags": "new"}) in seen
    assert (found[0].messages[0].tags, found[0].headers["added"]) == ("changed", "yes")


async def test_what_cannot_be_sent_is_refused(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()
    with pytest.raises(IncorrectState):
        await broker.publish("too soon", topic)
    async with started(broker):
        with pytest.raises(MessageRefused, match="DELAY"):
            await broker.publish("text", topic, headers={"DELAY": "1"})
        with pytest.raises(MessageRefused):
            await broker.publish("text", topic, delay_s=1, delay_level=1)
        for delay_s in (math.nan, math.inf, 1e300):
            with pytest.raises(MessageRefused, match="delay_s") as refused:
                await broker.publish("text", topic, delay_s=delay_s)
            assert len(str(refused.value)) < 200
        with pytest.raises(MessageRefused, match="bytes"):
            await broker.publish(bytes(5 << 20), topic)
        with pytest.raises(MessageRefused):
            await broker.publish("text", topic, headers={"a\x01b": "c"})
        with pytest.raises(TypeError, match="'partition'"):
            await broker.publish("text", topic, partition=1)  # type: ignore[call-arg]
        with pytest.raises(MessageRefused):
            await broker.publish_batch("a", "b", topic=topic, delay_s=1)
