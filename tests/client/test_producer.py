"""Every way a producer sends, to a real broker, and what is in its queues afterwards."""

import asyncio
import os
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ConfigError, MessageRefused, NotRunning
from firearrow.client.base.message import Message, MessageQueue, Property, SendStatus
from firearrow.client.base.options import ClientOptions, CompressionKind, ProducerOptions, PullConsumerOptions
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.queue_selection import by_hash, by_random
from tests.client.conftest import unique

Topics = Callable[..., str]


def producer(name_server: str, **options: object) -> Producer:
    return Producer(unique("producer"), name_server=name_server, options=ProducerOptions(**options))  # type: ignore[arg-type]


async def stored(name_server: str, topic: str, count: int, seconds: float = 20) -> list[ReceivedMessage]:
    """All `count` messages of the topic, by queue and offset."""
    found: list[ReceivedMessage] = []
    reader = PullConsumer(
        unique("reader"),
        name_server=name_server,
        options=PullConsumerOptions(auto_commit=False, pull_batch=32),
    )
    async with reader:
        queues = await reader.fetch_queues(topic)
        reader.assign(queues)
        for queue in queues:
            await reader.seek(queue, 0)
        async with asyncio.timeout(seconds):
            while len(found) < count:
                found += await reader.poll(timeout_s=1)
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))


async def test_one_message_with_everything(name_server: str, topics: Topics) -> None:
    topic, body = topics(), "火箭 🚀".encode() + bytes(range(256)) * 3
    async with producer(name_server) as sender:
        message = Message(
            topic,
            body,
            tags="tag-é",
            keys=["k1", "ключ"],
            flag=7,
            sharding_key="s",
            properties={"colour": 'grün \\ "quoted"', "long": "x" * 20_000},
        )
        result = await sender.send(message)
    assert result.status is SendStatus.SEND_OK
    assert result.raise_for_status() is result
    assert (result.queue.topic, result.queue_offset) == (topic, 0)
    [got] = await stored(name_server, topic, 1)
    assert got.body == body
    assert (got.tags, got.keys, got.flag) == ("tag-é", ("k1", "ключ"), 7)
    assert (got.properties["colour"], got.properties["long"]) == ('grün \\ "quoted"', "x" * 20_000)
    assert got.get_property(Property.SHARDING_KEY) == "s"
    assert got.message_id == result.message_id == message.unique_id
    assert got.offset_message_id == result.offset_message_id
    assert (got.queue_id, got.queue_offset) == (result.queue.queue_id, result.queue_offset)


@pytest.mark.parametrize("body", [b"", b"\0", bytes(range(256)), b"\0" * 5000, os.urandom(3 << 20)])
async def test_a_body_comes_back_unchanged(name_server: str, topics: Topics, body: bytes) -> None:
    topic = topics(queues=1)
    async with producer(name_server) as sender:
        await sender.send(Message(topic, body))
        await sender.submit(Message(topic, body))
        await sender.send_oneway(Message(topic, body))
        await sender.send_batch([Message(topic, body), Message(topic, b"end")])
    got = await stored(name_server, topic, 5)
    assert sorted(message.body for message in got) == sorted([body] * 4 + [b"end"])


@pytest.mark.parametrize("kind", list(CompressionKind))
async def test_large_bodies_travel_compressed(
    name_server: str, topics: Topics, kind: CompressionKind
) -> None:
    topic, body = topics(queues=1), b"again and again " * 4000
    async with producer(name_server, compression=kind) as sender:
        await sender.send(Message(topic, body))
        await sender.send(Message(topic, body[:4095]))
    large, small = await stored(name_server, topic, 2)
    assert (large.body, small.body) == (body, body[:4095])
    assert large.body_bytes < len(body) // 10
    assert small.body_bytes == 4095


async def test_many_at_once_each_have_an_offset(name_server: str, topics: Topics) -> None:
    topic = topics()
    bodies = [b"message %d" % number for number in range(2000)]
    async with producer(name_server, retries=20, send_timeout_s=20) as sender:
        results = await asyncio.gather(*(sender.send(Message(topic, body)) for body in bodies))
    assert len({(result.queue, result.queue_offset) for result in results}) == 2000
    got = {(m.queue_id, m.queue_offset): m.body for m in await stored(name_server, topic, 2000)}
    assert [got[result.queue.queue_id, result.queue_offset] for result in results] == bodies


async def test_a_batch_lands_together(name_server: str, topics: Topics) -> None:
    topic = topics()
    messages = [Message(topic, b"item %d" % number, tags="b", keys=["k"]) for number in range(50)]
    async with producer(name_server) as sender:
        result = await sender.send_batch(messages)
    assert result.message_id == ",".join(str(message.unique_id) for message in messages)
    assert result.offset_message_id.count(",") == 49
    got = await stored(name_server, topic, 50)
    assert [message.body for message in got] == [message.body for message in messages]
    assert {message.queue_id for message in got} == {result.queue.queue_id}
    assert [message.queue_offset for message in got] == list(range(50))
    assert [message.message_id for message in got] == [message.unique_id for message in messages]


async def test_automatic_batches_give_each_its_own_result(name_server: str, topics: Topics) -> None:
    topic = topics()
    async with producer(name_server, auto_batch=True) as sender:
        results = await asyncio.gather(
            *(
                sender.send(Message(topic, b"%d" % number, tags="a" if number % 2 else "b"))
                for number in range(600)
            )
        )
        alone = await sender.send(Message(topic, b"later", delay_level=1))
    assert alone.status is SendStatus.SEND_OK
    got = {(m.queue_id, m.queue_offset): m for m in await stored(name_server, topic, 601)}
    for number, result in enumerate(results):
        message = got[result.queue.queue_id, result.queue_offset]
        assert message.body == b"%d" % number
        assert message.message_id == result.message_id
        assert message.offset_message_id == result.offset_message_id


async def test_queues_are_chosen(name_server: str, topics: Topics) -> None:
    topic = topics()
    async with producer(name_server) as sender:
        queue = (await sender.send(Message(topic, b"0"))).queue
        third = MessageQueue(topic, queue.broker_name, 3)
        assert (await sender.send(Message(topic, b"1"), queue=third)).queue == third
        assert (await sender.submit(Message(topic, b"1"), queue=third)).queue == third
        assert (
            await sender.send(Message(topic, b"2"), selector=lambda queues, m: queues[2])
        ).queue.queue_id == 2
        by_key = {(await sender.send(Message(topic, b"3", sharding_key="order-7"))).queue for _ in range(5)}
        by_key.add((await sender.send(Message(topic, b"4"), selector=by_hash("order-7"))).queue)
        by_key.add((await sender.send_batch([Message(topic, b"b", sharding_key="order-7")] * 2)).queue)
        assert len(by_key) == 1
        assert await sender.queues(topic) == [MessageQueue(topic, queue.broker_name, n) for n in range(4)]
        assert (await sender.send(Message(topic, b"5"), selector=by_random)).queue.topic == topic
        with pytest.raises(MessageRefused):
            await sender.send(Message(topic, b"6"), queue=MessageQueue("another", queue.broker_name, 0))


async def test_a_topic_is_made_by_its_first_message(name_server: str) -> None:
    topic = unique("made")
    async with producer(name_server) as sender:
        result = await sender.send(Message(topic, b"first"))
        assert result.queue.topic == topic
        assert result.queue.queue_id < 4
        await asyncio.gather(*(sender.send(Message(topic, b"more")) for _ in range(20)))
    assert len(await stored(name_server, topic, 21)) == 21


async def test_delays_and_timers(name_server: str, topics: Topics) -> None:
    topic = topics(queues=1)
    async with producer(name_server) as sender:
        await sender.send(Message(topic, b"level", delay_level=1))
        timed = await sender.send(Message(topic, b"timer", delay_s=1.5))
        recalled = await sender.send(Message(topic, b"recalled", delay_s=3))
        await sender.send(Message(topic, b"now"))
        assert timed.recall_handle is not None
        assert recalled.recall_handle is not None
        assert await sender.recall(topic, recalled.recall_handle) == recalled.message_id
        got = await stored(name_server, topic, 3)
        assert got[0].body == b"now"
        assert {message.body for message in got} == {b"now", b"level", b"timer"}
        for message in got:
            least = {b"now": 0, b"level": 900, b"timer": 1400}[message.body]
            assert message.store_timestamp - message.born_timestamp >= least
        await asyncio.sleep(2.5)
        assert len(await stored(name_server, topic, 3)) == 3, "what was recalled does not come"
        with pytest.raises(MessageRefused):
            await sender.recall(topic, "no handle")
        with pytest.raises(BrokerError):
            await sender.send(Message(topic, b"too far", delay_s=86400 * 30))


async def test_what_may_not_be_sent_is_refused_before_it_leaves(name_server: str, topics: Topics) -> None:
    topic = topics()
    async with producer(name_server, message_bytes_max=1000) as sender:
        for refused in (
            Message("", b"x"),
            Message("a b", b"x"),
            Message("ü", b"x"),
            Message("t" * 128, b"x"),
            Message("SCHEDULE_TOPIC_XXXX", b"x"),
            Message(topic, b"x" * 1001),
            Message(topic, b"x", properties={"a": "b\x02c"}),
            Message(topic, b"x", properties={"a": "b" * 40_000}),
            Message(topic, b"x", properties={Property.MULTI_DISPATCH: "../x"}),
        ):
            with pytest.raises(MessageRefused):
                await sender.send(refused)
            with pytest.raises(MessageRefused):
                sender.submit(refused)
        for batch in (
            [],
            [Message(topic, b"x"), Message("other", b"x")],
            [Message(topic, b"x", delay_level=1)],
            [Message("%RETRY%g", b"x")],
            [Message(topic, b"x" * 600), Message(topic, b"x" * 600)],
            [Message(topic, b"x"), Message(topic, b"x", wait_store=False)],
        ):
            with pytest.raises(MessageRefused):
                await sender.send_batch(batch)
    for body in ("text", bytearray(b"x"), None):
        with pytest.raises(MessageRefused, match="body"):
            Message(topic, body)  # type: ignore[arg-type]
    with pytest.raises(MessageRefused, match="keys"):
        Message(topic, b"x", keys="one")


async def test_life(name_server: str, topics: Topics) -> None:
    sender = producer(name_server)
    with pytest.raises(NotRunning):
        await sender.send(Message("t", b"x"))
    await sender.start()
    with pytest.raises(NotRunning):
        await sender.start()
    last = [sender.submit(Message(topics(), b"on its way")) for _ in range(20)]
    await sender.close()
    assert all(future.result().status is SendStatus.SEND_OK for future in last)
    await sender.close()
    with pytest.raises(NotRunning):
        sender.submit(Message("t", b"x"))
    for group in ("", "DEFAULT_PRODUCER", "a b", "g" * 121):
        with pytest.raises(ConfigError):
            Producer(group, name_server=name_server)


async def test_brokers_know_the_group_while_it_runs(name_server: str, topics: Topics) -> None:
    topic = topics()
    async with Admin(name_server=name_server) as admin:
        sender = producer(name_server, topics=(topic,))
        async with sender:
            known = await admin.producers(sender.group)
            assert [connection.client_id for connection in known] == [sender.instance.client_id]
        with pytest.raises(BrokerError):
            await admin.producers(sender.group)


async def test_binary_headers_and_the_vip_port(name_server: str, topics: Topics) -> None:
    topic = topics(queues=1)
    client = ClientOptions(name_server=name_server, binary_headers=True, vip_channel=True)
    async with Producer(unique("producer"), client=client) as sender:
        await sender.send(Message(topic, b"binary", keys=["k"]))
        await sender.send_oneway(Message(topic, b"oneway"))
    assert [message.body for message in await stored(name_server, topic, 2)] == [b"binary", b"oneway"]
