"""A connection dies and no end of it comes: a proxy stops passing anything on. The client notices and opens another."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.keep_alive import OPTIONS
from firearrow.broker.net.acceptor import Listener
from firearrow.client import blocking
from firearrow.client.base.errors import ClientError, RequestTimeout
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.client.pushing import FIRST, Seen
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
TIMEOUT_S = 2.2


def client(detour: Detour, **options: object) -> ClientOptions:
    return ClientOptions(name_server=detour.name_server, api_timeout_s=TIMEOUT_S, **options)  # type: ignore[arg-type]


def producing(detour: Detour, **options: object) -> Producer:
    chosen = ProducerOptions(send_timeout_s=TIMEOUT_S, **options)  # type: ignore[arg-type]
    return Producer(unique("producer"), client=client(detour), options=chosen)


async def test_sends_go_on_after_one_time_out(peer: Peer, topics: Topics) -> None:
    """Of each kind, all at the same time: the time-out is what takes long."""
    kinds = ("send", "submit", "send_batch", "attempts")
    await asyncio.gather(*(_sends_go_on(peer, topics(queues=1), how) for how in kinds))


async def _sends_go_on(peer: Peer, topic: str, how: str) -> None:
    async with Detour(peer) as detour:
        more = {"attempt_timeout_s": 0.5} if how == "attempts" else {}
        async with producing(detour, **more) as producer:

            async def one() -> object:
                message = Message(topic, b"x")
                if how == "submit":
                    return await producer.submit(message)
                if how == "send_batch":
                    return await producer.send_batch([message, message])
                return await producer.send(message)

            for _ in range(3):
                await one()
            detour.broker.silence()
            with pytest.raises(ClientError):
                await one()
            began = time.monotonic()
            for _ in range(3):
                await one()
            assert time.monotonic() - began < 1
            assert detour.broker.accepted == 2, how


def test_the_blocking_client_goes_on_too(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)

    async def run() -> None:
        async with Detour(peer) as detour:

            def work() -> None:
                options = ProducerOptions(send_timeout_s=TIMEOUT_S)
                with blocking.Producer(
                    unique("producer"), client=client(detour), options=options
                ) as producer:
                    producer.send(Message(topic, b"x"))
                    detour.broker.silence()
                    with pytest.raises(ClientError):
                        producer.send(Message(topic, b"x"))
                    producer.send(Message(topic, b"x"))

            await asyncio.to_thread(work)

    asyncio.run(run())


async def test_pulls_go_on_after_one_time_out(peer: Peer, topics: Topics, feeder: RawProducer) -> None:
    """Of each kind, all at the same time."""
    kinds = ("push", "orderly", "pull")
    await asyncio.gather(*(_pulls_go_on(peer, topics(queues=1), feeder, kind) for kind in kinds))


async def _pulls_go_on(peer: Peer, topic: str, feeder: RawProducer, kind: str) -> None:
    seen = Seen()
    async with Detour(peer) as detour:
        if kind == "pull":
            pull_options = PullConsumerOptions(from_where=FIRST, suspend_s=1, suspend_timeout_s=TIMEOUT_S)
            consumer: PullConsumer | PushConsumer = PullConsumer(
                unique("group"), client=client(detour), options=pull_options
            )
            consumer.subscribe(topic)
        else:
            push_options = PushConsumerOptions(
                from_where=FIRST, orderly=kind == "orderly", pull_suspend_s=1, pull_timeout_s=TIMEOUT_S
            )
            consumer = PushConsumer(unique("group"), client=client(detour), options=push_options)
            consumer.subscribe(topic, seen)

        async def poll() -> None:
            while isinstance(consumer, PullConsumer):
                seen.messages += await consumer.poll(1)

        async with consumer:
            polling = asyncio.create_task(poll())
            await asyncio.to_thread(feeder.feed, topic, [b"1"])
            await eventually_async(lambda: seen.bodies == [b"1"])
            detour.broker.silence()
            await asyncio.to_thread(feeder.feed, topic, [b"2"])
            began = time.monotonic()
            await eventually_async(lambda: b"2" in seen.bodies)
            assert time.monotonic() - began < TIMEOUT_S + 3
            polling.cancel()


async def test_a_consumer_that_has_connected_again_keeps_all_its_queues(
    peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    """The broker has not noticed yet that its first connection is dead: half of the queues would be a namesake's."""
    topic, seen = topics(queues=8), Seen()
    async with Detour(peer) as detour:
        options = PushConsumerOptions(from_where=FIRST, pull_suspend_s=1, pull_timeout_s=TIMEOUT_S)
        client_options = client(detour, rebalance_s=0.2, heartbeat_s=0.5)
        consumer = PushConsumer(unique("group"), client=client_options, options=options)
        consumer.subscribe(topic, seen)
        async with consumer:
            await eventually_async(lambda: len(queues_of(consumer, topic)) == 8)
            detour.broker.silence()
            await eventually_async(lambda: detour.broker.accepted == 2)
            for queue_id in range(8):
                feeder.feed(topic, [b"%d" % queue_id], queue_id=queue_id)
            await eventually_async(lambda: len(seen.bodies) == 8)
            for _ in range(8):  # some rebalances later
                assert len(queues_of(consumer, topic)) == 8
                await asyncio.sleep(0.25)


def queues_of(consumer: PushConsumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == topic]


async def test_a_long_poll_is_not_mistaken_for_a_dead_connection(peer: Peer, topics: Topics) -> None:
    """Other calls of the connection time out meanwhile: nothing may have come for only a short time."""
    topic, seen = topics(queues=1), Seen()
    async with Detour(peer) as detour:
        options = PushConsumerOptions(from_where=FIRST, pull_suspend_s=5, pull_timeout_s=8)
        consumer = PushConsumer(unique("group"), client=client(detour), options=options)
        consumer.subscribe(topic, seen)
        async with consumer:
            await eventually_async(lambda: consumer.queues)
            await asyncio.sleep(3.5)  # nothing moves
            assert detour.broker.accepted == 1
            detour.broker.flowing.clear()
            queue = next(iter(consumer.queues))
            runtime = consumer._runtime
            assert runtime is not None
            with pytest.raises(ClientError):
                await asyncio.wait_for(runtime.instance.call_holder(queue, _any_request(topic), 0.3), 5)
            detour.broker.flowing.set()
            assert (await runtime.instance.call_holder(queue, _any_request(topic), 3)).code == 0
            assert detour.broker.accepted == 1, "0.3 s of silence prove nothing"


def _any_request(topic: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})


async def test_heartbeats_open_another_connection(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with Detour(peer) as detour:
        producer = Producer(
            unique("producer"),
            client=client(detour, heartbeat_s=0.2),
            options=ProducerOptions(topics=(topic,)),
        )
        async with producer:
            detour.broker.silence()
            await eventually_async(lambda: detour.broker.accepted == 2)
            await asyncio.sleep(0.5)
            assert detour.broker.accepted == 2


async def test_name_servers_are_asked_on_another_connection(peer: Peer, topics: Topics) -> None:
    topic, other = topics(queues=1), topics(queues=1)
    async with Detour(peer) as detour, producing(detour) as producer:
        await producer.send(Message(topic, b"x"))
        detour.naming.silence()
        with pytest.raises(ClientError):
            await producer.send(Message(other, b"x"))
        began = time.monotonic()
        await producer.send(Message(other, b"x"))
        assert time.monotonic() - began < 1


async def test_one_way_messages_leave_a_connection_that_takes_nothing(peer: Peer, topics: Topics) -> None:
    topic, body = topics(queues=1), b"x" * 500_000
    options = ProducerOptions(send_timeout_s=3, compress_over_bytes=1 << 30)
    async with Detour(peer) as detour, Producer("p", client=client(detour), options=options) as producer:
        await producer.send(Message(topic, b"x"))
        await asyncio.sleep(1.2)  # the first heartbeat is over: the next one would notice after half a minute
        detour.broker.silence()
        timeouts = 0
        async with asyncio.timeout(20):
            while detour.broker.accepted == 1:
                try:
                    await producer.send_oneway(Message(topic, body))
                except RequestTimeout:
                    timeouts += 1  # the first may still have moved some bytes into buffers of the kernel
        assert timeouts > 0


async def test_sockets_are_kept_alive(peer: Peer, topics: Topics) -> None:
    async with Producer(unique("producer"), name_server=peer.name_server) as producer:
        await producer.send(Message(topics(), b"x"))
        [channel] = [c for c in producer.instance.channels._all if c.address == peer.address]
        sock = channel.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == OPTIONS["TCP_USER_TIMEOUT"]


async def test_accepted_sockets_are_kept_alive() -> None:
    accepted: list[socket.socket] = []
    listener = await Listener.bind(asyncio.get_running_loop(), "127.0.0.1", 0, accepted.append)
    listener.start_serving()
    with socket.create_connection(listener.sockets[0].getsockname()):
        await eventually_async(lambda: accepted)
        [sock] = accepted
        with sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == OPTIONS["TCP_KEEPIDLE"]
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == OPTIONS["TCP_USER_TIMEOUT"]
    listener.close()
