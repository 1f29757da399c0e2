"""Subscribers against a real broker: what reaches which handler, in what form and order, and how often."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, Depends
from faststream.exceptions import SetupError, StopConsume
from pydantic import BaseModel

from firearrow.client import ConsumeFromWhere
from firearrow.client.integrations.faststream import RocketMQBroker, RocketMQMessage, RocketMQRouter
from tests.client.conftest import unique
from tests.integrations.faststream.conftest import started
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


class Order(BaseModel):
    name: str
    count: int = 1


async def test_a_handler_gets_the_decoded_body_its_headers_and_the_message(
    broker: RocketMQBroker, topics: Topics
) -> None:
    topic, found = topics(), []

    async def warehouse(order: Order) -> str:
        return f"hall of {order.name}"

    @broker.subscriber(topic)
    async def handle(
        order: Order,
        message: RocketMQMessage,
        running: Annotated[RocketMQBroker, Context("broker")],
        country: Annotated[str, Context("message.headers.country")],
        hall: Annotated[str, Depends(warehouse)],
    ) -> None:
        assert running is broker
        found.append((order, country, hall, message))

    async with started(broker):
        await broker.publish(
            Order(name="book"),
            topic,
            headers={"country": "DE"},
            tags="new",
            keys=["k1", "k2"],
            correlation_id="c-1",
        )
        await eventually_async(lambda: found)
    order, country, hall, message = found[0]
    assert (order, country, hall) == (Order(name="book"), "DE", "hall of book")
    assert message.headers == {"country": "DE", "content-type": "application/json", "correlation_id": "c-1"}
    assert (message.correlation_id, message.content_type) == ("c-1", "application/json")
    raw = message.raw_message
    assert (raw.topic, raw.tags, raw.keys, message.message_id) == (topic, "new", ("k1", "k2"), raw.message_id)


@pytest.mark.parametrize("body", [b"\x00\xff", "text", "", 1, 1.5, [1, "two"], {"key": None}, None])
async def test_bodies_arrive_as_they_were_published(
    broker: RocketMQBroker, topics: Topics, body: Any
) -> None:
    topic, found = topics(), []

    @broker.subscriber(topic)
    async def handle(received: Any) -> None:
        found.append(received)

    async with started(broker):
        await broker.publish(body, topic)
        await eventually_async(lambda: found)
    assert found == [b"" if body is None else body]


async def test_filters_by_tag_and_by_sql_leave_the_rest(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()
    by_tag, by_sql = list[str](), list[str]()

    @broker.subscriber(topic, group=unique("tags"), tags="new || paid")
    async def tagged(name: str) -> None:
        by_tag.append(name)

    @broker.subscriber(topic, group=unique("sql"), sql="price > 10 AND country = 'DE'")
    async def selected(name: str) -> None:
        by_sql.append(name)

    async with started(broker):
        for name, tags, price in (("a", "new", 5), ("b", "old", 20), ("c", "paid", 30)):
            await broker.publish(name, topic, tags=tags, headers={"price": price, "country": "DE"})
        await eventually_async(lambda: len(by_tag) == 2 and len(by_sql) == 2)
    assert sorted(by_tag) == ["a", "c"]
    assert sorted(by_sql) == ["b", "c"]


async def test_a_filter_chooses_the_handler(broker: RocketMQBroker, topics: Topics) -> None:
    topic, found = topics(), []
    subscriber = broker.subscriber(topic)

    @subscriber(filter=lambda message: message.content_type == "application/json")
    async def of_json(body: dict[str, Any]) -> None:
        found.append(("json", body))

    @subscriber
    async def of_others(body: str) -> None:
        found.append(("other", body))

    async with started(broker):
        await broker.publish({"key": 1}, topic)
        await broker.publish("text", topic)
        await eventually_async(lambda: len(found) == 2)
    assert sorted(found, key=str) == [("json", {"key": 1}), ("other", "text")]


async def test_a_handler_of_several_topics_and_subscribers(broker: RocketMQBroker, topics: Topics) -> None:
    first, second, third, found = topics(), topics(), topics(), []

    @broker.subscriber(first, second)
    @broker.subscriber(third)
    async def handle(body: str, message: RocketMQMessage) -> None:
        found.append((body, message.raw_message.topic))

    async with started(broker):
        for topic in (first, second, third):
            await broker.publish("hello", topic)
        await eventually_async(lambda: len(found) == 3)
    assert {topic for _, topic in found} == {first, second, third}


async def test_workers_handle_messages_at_the_same_time(broker: RocketMQBroker, topics: Topics) -> None:
    topic, at_work, most, done = topics(), 0, 0, asyncio.Event()

    @broker.subscriber(topic, max_workers=5)
    async def handle(body: int) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if most == 5:
            done.set()
        await asyncio.wait_for(done.wait(), 20)
        at_work -= 1

    async with started(broker):
        await broker.publish_batch(*range(20), topic=topic)
        await asyncio.wait_for(done.wait(), 20)
        await eventually_async(lambda: at_work == 0)
    assert most == 5


async def test_a_batch_subscriber_gets_lists(broker: RocketMQBroker, topics: Topics) -> None:
    topic, found, headers = topics(1), list[int](), list[Sequence[dict[str, Any]]]()
    await broker.connect()
    await broker.publish_batch(*range(50), topic=topic, headers={"of": "batch"})

    @broker.subscriber(topic, batch=True, max_records=40, from_where=ConsumeFromWhere.FIRST_OFFSET)
    async def handle(bodies: list[int], message: RocketMQMessage) -> None:
        assert len(bodies) == len(message.raw_message) <= 40
        found.extend(bodies)
        headers.append(message.batch_headers)

    async with started(broker):
        await eventually_async(lambda: len(found) >= 50)
    assert sorted(found) == list(range(50))
    assert all(one["of"] == "batch" for batch in headers for one in batch)


async def test_messages_with_one_sharding_key_are_handled_in_order(
    broker: RocketMQBroker, topics: Topics
) -> None:
    """Also after a failure: the next message of the queue comes when the failed one has succeeded."""
    topic, steps, failed = topics(4), defaultdict[str, list[int]](list), set[str]()

    @broker.subscriber(topic, orderly=True, max_workers=4, retry_delay_s=0.2)
    async def handle(step: int, message: RocketMQMessage) -> None:
        [order] = message.raw_message.keys
        if step == 2 and order not in failed:
            failed.add(order)
            raise ValueError("this step fails once")
        steps[order].append(step)

    orders = [f"order-{number}" for number in range(4)]
    async with started(broker):
        for step in range(5):
            for order in orders:
                await broker.publish(step, topic, sharding_key=order, keys=[order])
        await eventually_async(lambda: all(len(steps[order]) >= 5 for order in orders), 60)
    assert dict(steps) == {order: [0, 1, 2, 3, 4] for order in orders}
    assert failed == set(orders)


async def test_a_broadcast_reaches_each_process(
    name_server: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    topic, group, found = topics(2), unique("cache"), defaultdict[int, list[str]](list)

    def application(number: int) -> RocketMQBroker:
        broker = RocketMQBroker(name_server, group=unique("app"), logger=None)

        @broker.subscriber(topic, group=group, broadcasting=True, from_where=ConsumeFromWhere.FIRST_OFFSET)
        async def handle(body: str) -> None:
            found[number].append(body)
            raise ValueError("a broadcast does not come again")

        return broker

    first, second = application(1), application(2)
    async with started(first), started(second):
        await asyncio.sleep(
            0.5
        )  # a broadcasting member starts at the end of its queues, which it reads first
        for body in ("a", "b", "c"):
            await first.publish(body, topic)
        await eventually_async(lambda: len(found[1]) >= 3 and len(found[2]) >= 3)
    assert sorted(found[1]) == sorted(found[2]) == ["a", "b", "c"]


async def test_where_a_new_group_starts(broker: RocketMQBroker, topics: Topics) -> None:
    topic, first, last = topics(), list[str](), list[str]()
    await broker.connect()
    await broker.publish("before", topic)

    @broker.subscriber(topic, group=unique("first"), from_where=ConsumeFromWhere.FIRST_OFFSET)
    async def handle(body: str) -> None:
        first.append(body)

    @broker.subscriber(topic, group=unique("last"))
    async def handle_new(body: str) -> None:
        last.append(body)

    async with started(broker):
        await broker.publish("after", topic)
        await eventually_async(lambda: len(first) == 2 and last)
    assert (sorted(first), last) == (["after", "before"], ["after"])


async def test_a_router_adds_its_prefix_middlewares_and_dependencies(
    broker: RocketMQBroker, topics: Topics
) -> None:
    topic, events = topics(), []

    class Middleware(BaseMiddleware):
        async def consume_scope(self, call_next: Any, message: Any) -> Any:
            events.append("before")
            result = await call_next(message)
            events.append("after")
            return result

    async def dependency() -> None:
        events.append("dependency")

    head, tail = topic[:6], topic[6:]
    router = RocketMQRouter(head, middlewares=[Middleware], dependencies=[Depends(dependency)])

    @router.subscriber(tail)
    async def handle(body: str) -> None:
        events.append(body)

    broker.include_router(router)
    async with started(broker):
        await broker.publish("hello", topic)
        await eventually_async(lambda: events[-1:] == ["after"])
    assert events == ["before", "dependency", "hello", "after"]


async def test_parsers_and_decoders_of_the_user(broker: RocketMQBroker, topics: Topics) -> None:
    topic, found = topics(), []

    async def parser(raw: Any, original: Any) -> Any:
        message = await original(raw)
        message.headers["parsed"] = "yes"
        return message

    async def decoder(message: RocketMQMessage, original: Any) -> Any:
        return (await original(message)).upper()

    @broker.subscriber(topic, parser=parser, decoder=decoder)
    async def handle(body: str, message: RocketMQMessage) -> None:
        found.append((body, message.headers["parsed"]))

    async with started(broker):
        await broker.publish("hello", topic)
        await eventually_async(lambda: found)
    assert found == [("HELLO", "yes")]


async def test_messages_are_read_without_a_handler(broker: RocketMQBroker, topics: Topics) -> None:
    topic = topics()
    subscriber = broker.subscriber(topic, ack_policy=AckPolicy.ACK_FIRST)
    async with started(broker):
        assert await subscriber.get_one(timeout=0.1) is None
        await broker.publish("one", topic)
        message = await subscriber.get_one(timeout=20)
        assert message is not None
        assert await message.decode() == "one"
        await broker.publish_batch("two", "three", topic=topic)
        bodies = set()
        async for message in subscriber:
            bodies.add(await message.decode())
            if len(bodies) == 2:
                break
        assert bodies == {"two", "three"}


async def test_a_subscriber_is_added_and_stopped_while_the_broker_runs(
    broker: RocketMQBroker, topics: Topics
) -> None:
    topic, found = topics(), []
    async with started(broker):
        subscriber = broker.subscriber(topic)

        @subscriber
        async def handle(body: str) -> None:
            found.append(body)
            if body == "last":
                raise StopConsume

        await subscriber.start()
        await broker.publish("first", topic)
        await eventually_async(lambda: found)
        await broker.publish("last", topic)
        await eventually_async(lambda: not subscriber.running)
    assert found == ["first", "last"]


async def test_a_broker_starts_again_after_a_stop(broker: RocketMQBroker, topics: Topics) -> None:
    topic, found = topics(), []

    @broker.subscriber(topic)
    async def handle(body: str) -> None:
        found.append(body)

    for body in ("first", "second"):
        async with started(broker):
            assert await broker.ping(timeout=10)
            await broker.publish(body, topic)
            await eventually_async(lambda body=body: body in found)
        assert not await broker.ping(timeout=0.1)


def test_a_broker_object_runs_in_one_loop_after_the_other(broker: RocketMQBroker, topics: Topics) -> None:
    """As in tests of an application, which have a loop each."""
    topic, found = topics(), []

    @broker.subscriber(topic, prefetch=0)
    async def handle(body: int) -> None:
        found.append(body)

    async def run(number: int) -> None:
        async with started(broker):
            await broker.publish(number, topic)
            await eventually_async(lambda: found[-1:] == [number])

    for number in range(3):
        asyncio.run(run(number))
    assert found == [0, 1, 2]


async def test_what_does_not_fit_together_is_refused(broker: RocketMQBroker) -> None:
    cases: list[dict[str, Any]] = [
        {"tags": "a", "sql": "b = 1"},
        {"broadcasting": True, "orderly": True},
        {"broadcasting": True, "ack_policy": AckPolicy.NACK_ON_ERROR},
        {"broadcasting": True, "ack_policy": AckPolicy.REJECT_ON_ERROR},
        {"max_workers": 0},
        {"max_records": 0},
        {"prefetch": -1},
        {"invisible_s": 0.5},
        {"retry_delay_s": -1},
        {"retry_delay_s": math.nan},
        {"retry_delay_s": 3 * 86400 + 1},
    ]
    for options in cases:
        with pytest.raises(SetupError):
            broker.subscriber("topic", **options)
    with pytest.raises(SetupError, match="at least one topic"):
        broker.subscriber()
    with pytest.raises(TypeError, match="'tag'"):
        broker.subscriber("topic", tag="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'key'"):
        broker.publisher("topic", key="a")  # type: ignore[call-arg]


async def test_two_subscribers_of_one_group_are_refused(broker: RocketMQBroker, topics: Topics) -> None:
    """Members of a RocketMQ group must have the same topics and filters."""
    for tags in ("new", "old"):
        broker.subscriber(topics(), group="shared", tags=tags)
    with pytest.raises(Exception, match="shared"):
        await broker.start()
    await broker.stop()
