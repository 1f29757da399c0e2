"""Where a new group starts in a young topic, whose first message brokers have in memory: at a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    ConsumeFromWhere,
    PopConsumerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.client.test_pop_group import ask_for_pop
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
LAST, TIME = ConsumeFromWhere.LAST_OFFSET, ConsumeFromWhere.TIMESTAMP
OLD = [b"old %d" % number for number in range(4)]


@asynccontextmanager
async def pushed(name_server: str, group: str, topic: str, **options: object) -> AsyncIterator[list[bytes]]:
    bodies: list[bytes] = []
    made = PushConsumer(group, name_server=name_server, options=PushConsumerOptions(**options))  # type: ignore[arg-type]

    @made.subscribe(topic)
    async def handle(messages: list) -> None:  # type: ignore[type-arg]
        bodies.extend(message.body for message in messages)

    async with made:
        yield bodies


@asynccontextmanager
async def pulled(name_server: str, group: str, topic: str, **options: object) -> AsyncIterator[list[bytes]]:
    bodies: list[bytes] = []
    made = PullConsumer(group, name_server=name_server, options=PullConsumerOptions(**options))  # type: ignore[arg-type]
    made.subscribe(topic)

    async def poll() -> None:
        async for message in made:
            bodies.append(message.body)

    async with made:
        polling = asyncio.create_task(poll())
        yield bodies
    await polling


@asynccontextmanager
async def popped(name_server: str, group: str, topic: str, **options: object) -> AsyncIterator[list[bytes]]:
    bodies: list[bytes] = []
    made = PopConsumer(group, name_server=name_server, options=PopConsumerOptions(**options))  # type: ignore[arg-type]
    made.subscribe(topic)

    async def receive() -> None:
        async for message in made:
            bodies.append(message.body)
            await made.ack(message)

    async with made:
        receiving = asyncio.create_task(receive())
        yield bodies
    await receiving


WAYS = [
    pytest.param(pushed, {}, id="push"),
    pytest.param(pushed, {"orderly": True}, id="orderly"),
    pytest.param(pulled, {}, id="pull"),
    pytest.param(popped, {}, id="pop"),
    pytest.param(pushed, {"client_rebalance": False}, id="push that pops"),
]


@pytest.mark.parametrize(("way", "options"), WAYS)
async def test_with_last_offset_a_new_group_gets_what_is_sent_after_its_start(
    name_server: str,
    peer: Peer,
    topics: Topics,
    feeder: RawProducer,
    way: Callable,
    options: dict[str, object],
) -> None:  # type: ignore[type-arg]
    topic, group = topics(queues=1), unique("group")
    if "client_rebalance" in options:
        ask_for_pop(peer, topic, group)
    feeder.feed(topic, OLD)
    await asyncio.sleep(0.05)
    async with way(name_server, group, topic, from_where=LAST, **options) as bodies:
        feeder.feed(topic, [b"new"])  # at once, before the queue is assigned
        await eventually_async(lambda: bodies)
    assert bodies == [b"new"]


@pytest.mark.parametrize(("way", "options"), WAYS[:3])
async def test_with_a_time_a_new_group_gets_nothing_older(
    name_server: str, topics: Topics, feeder: RawProducer, way: Callable, options: dict[str, object]
) -> None:  # type: ignore[type-arg]
    topic = topics(queues=1)
    feeder.feed(topic, OLD)
    await asyncio.sleep(1.1)  # a push consumer's time is a whole second, as in Java
    began = datetime.now(UTC)
    async with way(
        name_server, unique("group"), topic, from_where=TIME, from_time=began, **options
    ) as bodies:
        feeder.feed(topic, [b"new"])
        await eventually_async(lambda: bodies)
    assert bodies == [b"new"]


@pytest.mark.parametrize(("way", "options"), WAYS[:3])
async def test_a_topic_that_is_created_after_the_start_is_consumed_from_its_first_message(
    name_server: str, way: Callable, options: dict[str, object]
) -> None:  # type: ignore[type-arg]
    topic = unique("later")
    async with (
        way(name_server, unique("group"), topic, from_where=LAST, **options) as bodies,
        Producer(unique("producer"), name_server=name_server) as producer,
    ):
        for number in range(5):
            await producer.send(Message(topic, b"%d" % number))
        await eventually_async(lambda: len(bodies) == 5)
    assert sorted(bodies) == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_next_owner_starts_where_the_group_did(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """The first member is closed before it was given a message."""
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, OLD)
    await asyncio.sleep(0.05)
    first = PushConsumer(group, name_server=name_server, options=PushConsumerOptions(from_where=LAST))
    first.subscribe(topic, lambda messages: None)
    async with first:
        await eventually_async(lambda: first.queues)
    feeder.feed(topic, [b"meanwhile"])
    await asyncio.sleep(0.05)
    async with pushed(name_server, group, topic, from_where=LAST) as bodies:
        await eventually_async(lambda: bodies)
    assert bodies == [b"meanwhile"]


async def test_a_group_without_an_offset_has_committed_none(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, OLD)
    async with PullConsumer(unique("group"), name_server=name_server) as reader:
        [queue] = await reader.fetch_queues(topic)
        assert await reader.committed(queue) is None
