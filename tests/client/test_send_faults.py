"""Producers on bad networks: each fault ends in the documented error, or in a retry that succeeds; see `proxy`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from firearrow.client.base.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NoRoute,
    RequestTimeout,
    TransportError,
)
from firearrow.client.base.message import Message, SendResult
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async
from tests.support.messages import read_messages

Topics = Callable[..., str]


@asynccontextmanager
async def sending(peer: Peer, **options: object) -> AsyncIterator[tuple[Producer, Detour]]:
    """A producer that connects through a Detour, whose heartbeats do not interfere."""
    async with Detour(peer) as detour:
        producer = Producer(
            unique("producer"),
            options=ProducerOptions(**options),  # type: ignore[arg-type]
            client=ClientOptions(
                name_server=detour.name_server,
                heartbeat_s=3600,
                poll_name_server_s=3600,
                api_timeout_s=1,
                connect_timeout_s=1,
            ),
        )
        async with producer:
            yield producer, detour


def stored(peer: Peer, topic: str) -> list[bytes]:
    with ClientSocket(address(peer.address)) as connection:
        return [record.body for record in read_messages(connection, topic)]


@pytest.mark.parametrize("cut_at", [1, 4, 20, 100])
async def test_an_answer_cut_in_half_is_a_lost_connection_and_the_next_send_works(
    cut_at: int, peer: Peer, topics: Topics
) -> None:
    topic = topics(queues=1)
    async with sending(peer, retries=0) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.answer_bytes = cut_at
        with pytest.raises(ConnectionLost):
            await producer.send(Message(topic, b"half"))
        await producer.send(Message(topic, b"after"))
    assert stored(peer, topic) == [b"before", b"half", b"after"]


async def test_with_tries_left_a_half_answer_costs_a_repeat_at_most(peer: Peer, topics: Topics) -> None:
    """The first try was stored, unknown to the producer; both have the same unique id."""
    topic = topics(queues=1)
    async with sending(peer) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.answer_bytes = 10
        await producer.send(Message(topic, b"half"))
    with ClientSocket(address(peer.address)) as connection:
        found = read_messages(connection, topic)
    assert [record.body for record in found] == [b"before", b"half", b"half"]
    assert found[1].properties["UNIQ_KEY"] == found[2].properties["UNIQ_KEY"]


@pytest.mark.parametrize(("resets", "retries"), [(1, 2), (2, 2), (1, 1)])
async def test_a_reset_in_a_send_is_tried_again(
    resets: int, retries: int, peer: Peer, topics: Topics
) -> None:
    topic = topics(queues=1)
    async with sending(peer, retries=retries) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.reset_requests = resets
        await producer.send(Message(topic, b"reset"))
    assert stored(peer, topic) == [b"before", b"reset"]


async def test_more_resets_than_tries_are_a_lost_connection(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with sending(peer, retries=1) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.reset_requests = 2
        with pytest.raises(ConnectionLost):
            await producer.send(Message(topic, b"reset"))
        await producer.send(Message(topic, b"after"))
    assert stored(peer, topic) == [b"before", b"after"]


@pytest.mark.parametrize("retries", [0, 2])
async def test_silence_is_a_time_out_within_the_time_of_the_whole_call(
    retries: int, peer: Peer, topics: Topics
) -> None:
    topic, loop = topics(queues=1), asyncio.get_running_loop()
    async with sending(peer, send_timeout_s=0.5, retries=retries) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.flowing.clear()
        began = loop.time()
        with pytest.raises(RequestTimeout):
            await producer.send(Message(topic, b"silent"))
        assert 0.4 < loop.time() - began < 1.5
        detour.broker.flowing.set()
        await producer.send(Message(topic, b"after"))
    await eventually_async(lambda: b"after" in stored(peer, topic))


async def test_of_many_sends_on_the_way_none_waits_for_ever(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with sending(peer, send_timeout_s=0.5, async_retries=0) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.flowing.clear()
        environment = [producer.submit(Message(topic, b"%d" % number)) for number in range(200)]
        async with asyncio.timeout(5):
            ended = await asyncio.gather(*environment, return_exceptions=True)
        assert {type(end) for end in ended} == {RequestTimeout}
        detour.broker.flowing.set()
        environment = [producer.submit(Message(topic, b"%d" % number)) for number in range(200)]
        async with asyncio.timeout(5):
            assert all(isinstance(end, SendResult) for end in await asyncio.gather(*environment))


async def test_a_reset_with_many_sends_in_flight_fails_each_of_them(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with sending(peer, async_retries=0) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.flowing.clear()
        environment = [producer.submit(Message(topic, b"%d" % number)) for number in range(200)]
        await asyncio.sleep(0)
        detour.broker.reset()
        async with asyncio.timeout(5):
            ended = await asyncio.gather(*environment, return_exceptions=True)
        assert {type(end) for end in ended} == {ConnectionLost}
        detour.broker.flowing.set()
        await producer.send(Message(topic, b"after"))


async def test_a_broker_that_is_gone_refuses_and_once_it_is_back_sends_work(
    peer: Peer, topics: Topics
) -> None:
    topic = topics(queues=1)
    async with sending(peer) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        await detour.broker.shut()
        with pytest.raises((ConnectFailed, ConnectionLost)):
            await producer.send(Message(topic, b"gone"))
        await detour.broker.open()
        await producer.send(Message(topic, b"after"))
    assert stored(peer, topic) == [b"before", b"after"]


async def test_without_a_name_server_known_topics_go_on_and_others_wait_for_it(
    peer: Peer, topics: Topics
) -> None:
    known, other = topics(queues=1), topics(queues=1)
    async with sending(peer) as (producer, detour):
        await producer.send(Message(known, b"before"))
        await detour.naming.shut()
        await producer.send(Message(known, b"after"))
        with pytest.raises((TransportError, NoRoute)):
            await producer.send(Message(other, b"who"))
        await detour.naming.open()
        await producer.send(Message(other, b"found"))
    assert stored(peer, known) == [b"before", b"after"]
    assert stored(peer, other) == [b"found"]


@pytest.mark.parametrize("cut_at", [2, 50])
async def test_a_half_answer_of_the_name_server_is_an_error_and_the_next_one_counts(
    cut_at: int, peer: Peer, topics: Topics
) -> None:
    topic = topics(queues=1)
    async with sending(peer) as (producer, detour):
        detour.naming.answer_bytes = cut_at
        with pytest.raises(ClientError):
            await producer.send(Message(topic, b"who"))
        await producer.send(Message(topic, b"found"))
    assert stored(peer, topic) == [b"found"]


async def test_frames_in_small_chunks_are_reassembled(peer: Peer, topics: Topics) -> None:
    topic, body = topics(queues=1), bytes(range(256)) * 8
    async with sending(peer, compress_over_bytes=1 << 20) as (producer, detour):
        detour.broker.chunk_bytes = 11
        for _ in range(3):
            await producer.send(Message(topic, body))
    assert stored(peer, topic) == [body] * 3


async def test_a_close_in_silence_ends(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with sending(peer, send_timeout_s=2, drain_s=2) as (producer, detour):
        await producer.send(Message(topic, b"before"))
        detour.broker.flowing.clear()
        way = producer.submit(Message(topic, b"silent"))
        async with asyncio.timeout(10):
            await producer.close()
        with pytest.raises(ClientError):
            await way
