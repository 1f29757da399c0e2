"""Requests that only FireArrow's broker answers, at a real broker."""

import asyncio
import time
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client import (
    BrokerError,
    ClientError,
    ConfigError,
    ConsumeFromWhere,
    Extensions,
    Message,
    OnlyFireArrow,
    PullConsumer,
    PullConsumerOptions,
    blocking,
)
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.options import ClientOptions
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.interop.peers import Peer


@pytest.fixture(autouse=True)
def _firearrow(peer: Peer) -> None:
    if peer.kind != "firearrow":
        pytest.skip("Apache's broker does not answer these requests")


async def test_a_trim_and_the_lag_after_it(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=1), unique("group")
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        extensions = Extensions(admin)
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number))
        [queue] = await admin.queues(topic)
        await admin.create_group(group)
        await admin.update_offset(group, queue, 2)
        [lag] = await extensions.lag(group, topic)
        assert (lag.group, lag.topic, lag.committed, lag.lag) == (group, topic, 2, 8)
        assert 0 < lag.next_stored_ms <= time.time_ns() // 1_000_000
        [planned] = await extensions.trim_topic(topic, offset=6, dry_run=True)
        assert (planned.min_offset, planned.trimmed, planned.broker) == (6, 6, queue.broker_name)
        assert await admin.min_offset(queue) == 0
        assert [each.trimmed for each in await extensions.trim_topic(topic, offset=6, queue_id=0)] == [6]
        assert await admin.min_offset(queue) == 6
        [lag] = await extensions.lag(group, topic)
        assert (lag.min_offset, lag.committed, lag.lag) == (6, 2, 4)
        assert [each.trimmed for each in await extensions.trim_topic(topic, offset=-1)] == [4]
        for fields in ({}, {"offset": 1, "before": 1}):
            with pytest.raises(ConfigError, match="offset, before"):
                await extensions.trim_topic(topic, **fields)  # type: ignore[arg-type]
        with pytest.raises(BrokerError, match="past the end"):
            await extensions.trim_topic(topic, offset=11)


async def test_a_consumer_reads_on_after_a_trim(name_server: str, topics: Callable[..., str]) -> None:
    """Its client goes to the first offset that is left."""
    topic = topics(queues=1)
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        for number in range(100):
            await producer.send(Message(topic, b"%d" % number))
        options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, pull_batch=1)
        async with PullConsumer(unique("g"), name_server=name_server, options=options) as consumer:
            consumer.subscribe(topic)
            seen: list[int] = []
            async for message in consumer:
                seen.append(int(message.body))
                if len(seen) == 1:
                    await Extensions(admin).trim_topic(topic, offset=90)
                if seen[-1] == 99:
                    break
        assert seen == sorted(set(seen))
        assert seen[-10:] == list(range(90, 100))


async def test_what_waits(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=1)
    due_ms = time.time_ns() // 1_000_000 + 7_200_000
    client = ClientOptions(name_server=name_server)
    async with Admin(client=client) as admin, Producer(unique("p"), client=client) as producer:
        extensions = Extensions(admin)
        await producer.send(Message(topic, b"later", properties={"TIMER_DELIVER_MS": str(due_ms)}))
        await producer.send(Message(topic, b"level", properties={"DELAY": "18"}))
        pending = await extensions.pending_timers(topic)
        while len(pending) < 2:
            pending = await extensions.pending_timers(topic)
        assert [each.kind for each in pending] == ["delay", "timer"]
        assert not pending.more
        assert pending.rows[1].bytes == 5
        assert [each.kind for each in await extensions.pending_timers(topic, begin_ms=due_ms - 60_000)] == [
            "timer"
        ]
        for listing in (
            await extensions.half_messages(unique("nobody")),
            await extensions.queue_locks(unique("nobody")),
            await extensions.pop_in_flight(unique("nobody")),
        ):
            assert (listing.rows, listing.more) == ((), False)


async def test_refusals_and_connections(name_server: str, topics: Callable[..., str]) -> None:
    client = ClientOptions(name_server=name_server, heartbeat_s=0.1)
    async with Admin(client=client) as admin, Producer(unique("p"), client=client) as producer:
        extensions, topic = Extensions(admin), topics(queues=1)
        await producer.send(Message(topic, b"x"))
        with pytest.raises(BrokerError):
            await extensions.close_connection()
        refusals = await extensions.refusals()
        assert refusals.by_reason["INVALID_PARAMETER"] >= 1
        assert any(each.code == RequestCode.CLOSE_CONNECTION for each in refusals.last)
        async with asyncio.timeout(20):
            connections = await extensions.connections()
            while not any(producer.group in each.producer_groups for each in connections):
                await asyncio.sleep(0.05)  # until its heartbeat
                connections = await extensions.connections()
        assert all(each.frames > 0 for each in connections if each.producer_groups)
        with pytest.raises(ClientError, match="nowhere"):
            await extensions.connections(broker="nowhere")


async def test_another_broker_does_not_answer(name_server: str) -> None:
    """A name server's port knows these codes as little as Apache's broker."""
    async with Admin(name_server) as admin:
        with pytest.raises(OnlyFireArrow, match="only FireArrow's") as raised:
            await Extensions(admin)._ask_one(name_server, RequestCode.GET_LAG, {}, b"")
        assert raised.value.code == 3


def test_without_an_event_loop(name_server: str) -> None:
    with blocking.Admin(name_server) as admin:
        extensions = blocking.Extensions(admin)
        assert extensions.lag(unique("nobody"), "TBW102").more is False
        assert extensions.close_connection(client_id=unique("nobody")) == 0
