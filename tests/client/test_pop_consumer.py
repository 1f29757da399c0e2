"""PopConsumer against a real broker."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow.client import blocking
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ConfigError, InvalidReceiptHandle, NotRunning
from firearrow.client.base.message import Property
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PopConsumerOptions
from firearrow.client.consumers import pop_consumer
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.pop.receipt_handles import receipt_handle_of
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer

FIRST = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, wait_s=5)


def consumer(name_server: str, topic: str, tags: str | None = None, **options: object) -> PopConsumer:
    made = PopConsumer(unique("group"), name_server=name_server, options=FIRST)
    made.subscribe(topic, tags)
    return made


async def all_bodies(popping: PopConsumer, count: int) -> list[bytes]:
    """Acknowledged on arrival."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = await popping.receive()
        assert messages, f"{len(bodies)} of {count} came"
        await popping.ack_batch(messages)
        bodies += [message.body for message in messages]
    return bodies


async def test_each_message_comes_once(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics()
    sent = feeder.spread(topic, 100)
    async with consumer(name_server, topic) as popping:
        assert sorted(await all_bodies(popping, 100)) == sorted(sent)
        assert await popping.receive(wait_s=0.2) == []


async def test_members_of_a_group_share_a_queue(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    """Messages are shared, not queues."""
    topic = topics(queues=1)
    feeder.feed(topic, [b"%d" % number for number in range(8)])
    async with consumer(name_server, topic) as first:
        second = PopConsumer(first.group, name_server=name_server, options=FIRST)
        second.subscribe(topic)
        async with second:
            found = [await one.receive(4) for one in (first, second)]
            bodies = {message.body for messages in found for message in messages}
            assert [len(messages) for messages in found] == [4, 4]
            assert bodies == {b"%d" % number for number in range(8)}


async def test_what_is_not_acknowledged_comes_back(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"kept", b"lost"])
    async with consumer(name_server, topic) as popping:
        kept, lost = await popping.receive(invisible_s=1)
        await popping.ack(kept)
        [again] = await popping.receive(wait_s=20)
        assert (again.body, again.topic, again.reconsume_times) == (b"lost", topic, 1)
        assert again.properties[Property.FIRST_POP_TIME] == str(receipt_handle_of(lost).pop_ms)
        assert receipt_handle_of(again).kind in ("1", "2")
        await popping.ack(again)
        assert await popping.receive(wait_s=2) == []


async def test_the_invisible_time_is_changed_both_ways(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"long", b"short"])
    async with consumer(name_server, topic) as popping:
        long, short = await popping.receive(invisible_s=2)
        before = receipt_handle_of(long)
        await popping.change_invisible(long, 60)
        await popping.change_invisible(short, 1)
        assert receipt_handle_of(long).start_offset == before.queue_offset
        assert receipt_handle_of(long).invisible_ms == 60000
        [again] = await popping.receive(wait_s=20)
        assert again.body == b"short"
        await popping.ack_batch([again, long])
        assert await popping.receive(wait_s=3) == []


RENEWING = PopConsumerOptions(
    from_where=ConsumeFromWhere.FIRST_OFFSET, wait_s=5, invisible_s=2, auto_renew=True
)


async def test_renewed_messages_stay_invisible_until_they_are_settled(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"acked", b"batch", b"released", b"left"])
    async with PopConsumer(unique("group"), name_server=name_server, options=FIRST) as other:
        other.subscribe(topic)
        consumer = PopConsumer(other.group, name_server=name_server, options=RENEWING)
        consumer.subscribe(topic)
        async with consumer:
            acked, batch, released, left = await consumer.receive()
            first = [receipt_handle_of(each) for each in (acked, left)]
            assert await other.receive(wait_s=6) == []  # three times the invisible time
            assert [receipt_handle_of(each) for each in (acked, left)] != first
            await consumer.ack(acked)
            await consumer.ack_batch([batch])
            await consumer.change_invisible(released, 0.1)
            [again] = await other.receive(wait_s=20)
            assert (again.body, again.reconsume_times) == (b"released", 1)
            await other.ack(again)
            held = [consumer.holds(each) for each in (acked, batch, released, left)]
            assert held == [False, False, False, True]
        [again] = await other.receive(wait_s=20)
        assert again.body == b"left"
        await other.ack(again)
        assert await other.receive(wait_s=4) == []


async def test_what_a_loop_did_not_yield_is_renewed_no_more(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    """The program never gets it: held, it would be lost to the group while this client runs."""
    topic = topics(queues=1)
    feeder.feed(topic, [b"0", b"1", b"2", b"3"])
    consumer = PopConsumer(unique("group"), name_server=name_server, options=RENEWING)
    consumer.subscribe(topic)
    async with consumer:
        async for message in consumer:
            await consumer.ack_batch([message, message])  # twice: it must not wait for itself
            break
        again = await consumer.receive(wait_s=20)
        assert sorted(each.body for each in again) == [b"1", b"2", b"3"]
        await consumer.ack_batch(again)


def test_what_a_blocking_loop_did_not_yield_is_renewed_no_more(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"0", b"1"])
    with blocking.PopConsumer(unique("group"), name_server=name_server, options=RENEWING) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            consumer.ack(message)
            break
        [again] = consumer.receive(wait_s=20)
        consumer.ack(again)
    assert (message.body, again.body) == (b"0", b"1")


async def test_renewed_messages_may_be_acknowledged_twice_and_at_the_same_time(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"one", b"two"])
    consumer = PopConsumer(unique("group"), name_server=name_server, options=RENEWING)
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(20):
        one, two = await consumer.receive()
        batches = ([one, one, two], [two, one])
        await asyncio.gather(*map(consumer.ack_batch, batches), consumer.ack(one))
        assert not consumer.holds(one)
        assert not consumer.holds(two)


async def test_a_message_whose_settlement_is_refused_comes_again(
    name_server: str, topics: Callable[..., str], feeder: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held, it would be lost to the group while this client runs. A broker that is busy is asked again."""
    monkeypatch.setattr(pop_consumer, "AGAIN_S", 0.01)
    answers = [*pop_consumer.BUSY, ResponseCode.NO_PERMISSION]

    async def refused() -> None:
        raise BrokerError(answers.pop(0), "", "broker")

    topic = topics(queues=1)
    feeder.feed(topic, [b"body"])
    consumer = PopConsumer(unique("group"), name_server=name_server, options=RENEWING)
    consumer.subscribe(topic)
    async with consumer:
        [message] = await consumer.receive()
        with pytest.raises(BrokerError, match="NO_PERMISSION"):
            await consumer.settle([message], refused)
        assert not answers
        [again] = await consumer.receive(wait_s=20)
        await consumer.settle([again], lambda: consumer.ack(again))


async def test_a_message_becomes_a_dead_letter(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"poison"], tag="A")
    async with consumer(name_server, topic) as popping, Admin(name_server=name_server) as admin:
        [message] = await popping.receive(invisible_s=2)
        await popping.dead_letter(message)
        assert await popping.receive(wait_s=4) == []
        [queue] = (await admin.topic_stats(f"%DLQ%{popping.group}")).values()
        assert queue.max_offset - queue.min_offset == 1


async def test_tags_and_sql(name_server: str, topics: Callable[..., str], feeder: RawProducer) -> None:
    topic = topics()
    feeder.feed(topic, [b"a"], tag="A", price="1")
    feeder.feed(topic, [b"b"], tag="B", price="9")
    feeder.feed(topic, [b"none"], price="10")
    async with consumer(name_server, topic, "A || B") as by_tag:
        assert sorted(await all_bodies(by_tag, 2)) == [b"a", b"b"]
    by_sql = PopConsumer(unique("group"), name_server=name_server, options=FIRST)
    by_sql.subscribe(topic, sql="price > 5")
    async with by_sql:
        assert sorted(await all_bodies(by_sql, 2)) == [b"b", b"none"]


async def test_a_tag_with_the_same_hash_is_passed_over(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    """Java's hashes of `Aa` and `BB` are equal, so brokers return both."""
    topic = topics(queues=1)
    feeder.feed(topic, [b"not wanted"], tag="BB")
    feeder.feed(topic, [b"wanted"], tag="Aa")
    async with consumer(name_server, topic, "Aa") as popping:
        assert await all_bodies(popping, 1) == [b"wanted"]
        assert await popping.receive(wait_s=0.2) == []


async def test_a_waiting_receive_gets_what_arrives(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    one, two = topics(), topics()
    popping = PopConsumer(unique("group"), name_server=name_server, options=FIRST)
    popping.subscribe(one)
    popping.subscribe(two)
    async with popping:
        for topic in (one, two):
            waiting = asyncio.create_task(popping.receive(wait_s=20))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(feeder.feed, topic, [topic.encode()])
            [message] = await waiting
            assert (message.topic, message.body) == (topic, topic.encode())
            await popping.ack(message)
        with pytest.raises(ConfigError):
            await popping.receive(topic="other")


async def test_a_cancelled_receive_loses_nothing(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    async with consumer(name_server, topic) as popping:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await popping.receive(wait_s=20)
        await asyncio.to_thread(feeder.feed, topic, [b"1", b"2", b"3"])
        found = await popping.receive(1, wait_s=20)
        while len(found) < 3:
            found += await popping.receive(1, wait_s=20)
        assert [message.body for message in found] == [b"1", b"2", b"3"]
        assert {message.reconsume_times for message in found} == {0}


async def test_in_order_the_queue_rests_until_all_is_acknowledged(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"1", b"2", b"3"])
    options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, orderly=True)
    popping = PopConsumer(group, name_server=name_server, options=options)
    popping.subscribe(topic)
    async with popping:
        first = await popping.receive(2, wait_s=5, invisible_s=2)
        assert [message.body for message in first] == [b"1", b"2"]
        assert receipt_handle_of(first[0]).in_order
        assert await popping.receive(wait_s=0) == []
        await popping.ack(first[0])
        [second, *_] = await popping.receive(wait_s=20, invisible_s=60)
        assert (second.body, second.reconsume_times) == (b"2", 1)


async def test_iterating(name_server: str, topics: Callable[..., str], feeder: RawProducer) -> None:
    topic = topics()
    sent = feeder.spread(topic, 10)
    found = []
    async with consumer(name_server, topic) as popping:
        async for message in popping:
            await popping.ack(message)
            found.append(message.body)
            if len(found) == 10:
                break
    assert sorted(found) == sorted(sent)


async def test_names_of_a_namespace_stay_outside(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    """Topic and group are wrapped for the broker, and those of retried messages, too."""
    plain = topics(queues=1)
    client = ClientOptions(name_server=name_server, namespace="space")
    await asyncio.to_thread(feeder.feed, f"space%{plain}", [b"body"])
    popping = PopConsumer(unique("group"), options=FIRST, client=client)
    popping.subscribe(plain)
    async with popping:
        [message] = await popping.receive(invisible_s=1)
        assert message.topic == plain
        [again] = await popping.receive(wait_s=20)
        assert (again.topic, again.reconsume_times) == (plain, 1)
        await popping.ack(again)


async def test_codes_too_large_for_binary_headers_go_in_json(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"1", b"2"])
    client = ClientOptions(name_server=name_server, binary_headers=True)
    popping = PopConsumer(unique("group"), options=FIRST, client=client)
    popping.subscribe(topic)
    async with popping:
        one, two = await popping.receive()
        await popping.ack_batch([one])
        await popping.change_invisible(two, 30)
        await popping.ack(two)


async def test_waiting_takes_nothing(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic, other = topics(), topics()
    async with consumer(name_server, topic) as popping:
        popping.subscribe(other)
        for sources in (topic, None):
            assert not await popping.wait(0.2, topic=sources)
            waiting = asyncio.create_task(popping.wait(30, topic=sources))
            await asyncio.sleep(0.1)
            feeder.feed(topic, [b"x"])
            assert await waiting
            assert await popping.wait(30, topic=sources)
            assert await all_bodies(popping, 1) == [b"x"]
        waiting = asyncio.create_task(popping.wait(30))
        await asyncio.sleep(0.1)
    assert not await waiting


async def test_closing_ends_a_receive_that_waits(name_server: str, topics: Callable[..., str]) -> None:
    async with consumer(name_server, topics()) as popping:
        waiting = asyncio.create_task(popping.receive(wait_s=20))
        await asyncio.sleep(0.1)
    assert await waiting == []


async def test_misuse_is_an_error(name_server: str, topics: Callable[..., str], feeder: RawProducer) -> None:
    with pytest.raises(ConfigError, match="from_where"):
        PopConsumerOptions(from_where=ConsumeFromWhere.TIMESTAMP)
    topic = topics(queues=1)
    feeder.feed(topic, [b"body"])
    popping = consumer(name_server, topic)
    with pytest.raises(NotRunning):
        await popping.receive()
    async with popping:
        with pytest.raises(ConfigError):
            await popping.receive(33)
        with pytest.raises(NotRunning):
            await popping.start()
        [message] = await popping.receive()
        with pytest.raises(ConfigError):
            await popping.change_invisible(message, 0)
        message.put_property(Property.POP_CHECK_POINT, "0 1 2 3 0 nowhere 0 0")
        with pytest.raises(Exception, match="nowhere"):
            await popping.ack(message)
        message.put_property(Property.POP_CHECK_POINT, "no receipt")
        with pytest.raises(InvalidReceiptHandle):
            await popping.ack(message)
    with pytest.raises(NotRunning):
        await popping.ack(message)
    with pytest.raises(NotRunning):
        await popping.start()


async def test_the_brokers_refusal_is_raised(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics()
    popping = PopConsumer(unique("group"), name_server=name_server, options=FIRST)
    popping.subscribe(topic, sql="price >")
    async with popping:
        with pytest.raises(BrokerError) as refused:
            await popping.receive(wait_s=0)
        assert refused.value.code == 23
