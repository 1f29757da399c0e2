"""The position of a PullConsumer: commits, seeks, pauses, and offsets by time."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ConsumeFromWhere
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.client.test_pull_consumer import Topics, consumer, polled, settled, subscribed
from tests.support.eventually import eventually_async

# ---- commit ----


async def test_a_batch_counts_when_the_user_comes_back(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"1", b"2", b"3"])

    async def fail_at(body: bytes) -> list[bytes]:
        seen = []
        async with subscribed(name_server, topic, group) as pulling:
            async for message in pulling:
                seen.append(message.body)
                if message.body == body:
                    raise ValueError(body)
        return seen

    with pytest.raises(ValueError, match="2"):
        await fail_at(b"2")
    async with subscribed(name_server, topic, group) as pulling:
        assert await polled(pulling, 2) == [b"2", b"3"]
    async with subscribed(name_server, topic, group) as pulling:
        await settled(pulling, 1)
        assert await pulling.poll(0.2) == [], "closing committed what was polled last"


async def test_what_was_not_polled_comes_again(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"%d" % number for number in range(30)])
    async with subscribed(name_server, topic, group) as pulling:
        assert len(await pulling.poll(10)) == 10
    async with subscribed(name_server, topic, group) as pulling:
        assert (await pulling.poll(10))[0].body == b"10"


async def test_commits_by_hand(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, group = topics(queues=2), unique("group")
    for queue_id in range(2):
        feeder.feed(topic, [b"a", b"b", b"c"], queue_id=queue_id)
    async with subscribed(name_server, topic, group, auto_commit=False) as pulling:
        await polled(pulling, 6)
        first, second = sorted(pulling.assignment())
        assert await pulling.committed(first) in (0, None)
        await pulling.commit([first])
        await pulling.commit({second: 2, MessageQueue(topic, "elsewhere", 0): 9})
        assert [await pulling.committed(queue) for queue in (first, second)] == [3, 2]
        with pytest.raises(ConfigError):
            await pulling.commit({second: -1})
    async with subscribed(name_server, topic, group) as pulling:
        assert await polled(pulling, 1) == [b"c"]
        assert await pulling.poll(0.2) == []


async def test_the_offset_passes_over_what_the_filter_left_out(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Unlike Java's, where the group would always seem to have a lag."""
    topic = topics(queues=1)
    feeder.feed(topic, [b"wanted"], tag="A")
    feeder.feed(topic, [b"other"] * 5, tag="B")
    pulling = consumer(name_server)
    pulling.subscribe(topic, "A")
    async with pulling:
        assert await polled(pulling, 1) == [b"wanted"]
        [queue] = pulling.assignment()
        await eventually_async(lambda: pulling.position(queue) == 6)
        await pulling.commit()
        assert await pulling.committed(queue) == 6


# ---- seek and pause ----


async def test_seeking(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"%d" % number for number in range(30)])
    async with subscribed(name_server, topic) as pulling:
        assert (await pulling.poll(10))[0].body == b"0"
        [queue] = pulling.assignment()
        await pulling.seek(queue, 20)
        assert pulling.position(queue) == 20
        assert (await pulling.poll(10))[0].body == b"20"
        await pulling.seek_to_begin(queue)
        assert (await pulling.poll(10))[0].body == b"0"
        await pulling.seek_to_end(queue)
        assert await pulling.poll(0.2) == []
        await pulling.commit()
        assert await pulling.committed(queue) == 30
        with pytest.raises(ConfigError, match=r"31 is not within 0\.\.30"):
            await pulling.seek(queue, 31)
        with pytest.raises(ConfigError):
            await pulling.seek(MessageQueue(topic, "elsewhere", 0), 0)


async def test_a_seek_lets_go_of_the_pull_that_waits_at_the_broker(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"1"])
    async with subscribed(name_server, topic) as pulling:
        await polled(pulling, 1)
        assert await pulling.poll(0.1) == []
        [queue] = pulling.assignment()
        began = time.monotonic()
        await pulling.seek_to_begin(queue)
        assert await polled(pulling, 1) == [b"1"]
        assert time.monotonic() - began < 10, "a pull waits 20 s at the broker"


async def test_a_paused_queue_gives_nothing_new(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=2)
    async with subscribed(name_server, topic) as pulling:
        await settled(pulling, 2)
        first, second = sorted(pulling.assignment())
        pulling.pause([first])
        await pulling.seek_to_begin(first)  # ends the pull in flight
        feeder.feed(topic, [b"resting"], queue_id=0)
        feeder.feed(topic, [b"flowing"], queue_id=1)
        assert await polled(pulling, 1) == [b"flowing"]
        assert await pulling.poll(0.2) == []
        pulling.resume([first])
        assert await polled(pulling, 1) == [b"resting"]
        assert second in pulling.assignment()


async def test_offsets_by_time(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"old"])
    await asyncio.sleep(0.05)
    between = datetime.now(UTC)
    await asyncio.sleep(0.05)
    feeder.feed(topic, [b"new"])
    async with consumer(name_server) as pulling:
        [queue] = await pulling.fetch_queues(topic)
        assert await pulling.offset_for_time(queue, between) == 1
        assert await pulling.offset_for_time(queue, 0) == 0
        assert (await pulling.first_offset(queue), await pulling.last_offset(queue)) == (0, 2)


async def test_a_group_may_begin_at_a_time(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"old"])
    await asyncio.sleep(1.1)  # the option is exact to a second
    now = datetime.now()
    await asyncio.sleep(0.05)
    feeder.feed(topic, [b"new"])
    pulling = subscribed(name_server, topic, from_where=ConsumeFromWhere.TIMESTAMP, from_time=now)
    async with pulling:
        # brokers give a new group offset 0 while the queue's first message is still in memory
        assert (await polled(pulling, 1))[0] in (b"old", b"new")
