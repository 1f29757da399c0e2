"""One of two brokers hangs (SIGSTOP): connected, but it answers nothing. Nothing waits for it but what needs it."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from firearrow.client.base.errors import RequestTimeout
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.pushing import Seen
from tests.client.test_two_brokers import known
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
FIRST = ConsumeFromWhere.FIRST_OFFSET
TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def second(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondBroker]:
    if peer.kind == "apache":
        pytest.skip("the process of Apache's broker is not ours to stop")
    second = SecondBroker(peer, tmp_path_factory.mktemp("frozen") / "store")
    yield second
    second.kill()


class Frozen:
    """`async with Frozen(...) as topic`: it has queues at both brokers, and the second one hangs."""

    def __init__(self, peer: Peer, second: SecondBroker, topics: Topics) -> None:
        self._peer = peer
        self._second = second
        self.topic = topics(queues=2)

    async def __aenter__(self) -> str:
        self._second.add_topic(self.topic, 2)
        await known(self._peer, self.topic, 2)
        self._second.signal(signal.SIGSTOP)
        return self.topic

    async def __aexit__(self, *_: object) -> None:
        self._second.signal(signal.SIGCONT)


def client(peer: Peer) -> ClientOptions:
    return ClientOptions(name_server=peer.name_server, api_timeout_s=TIMEOUT_S)


async def send_to_the_living(peer: Peer, topic: str) -> None:
    async with Producer(unique("producer"), client=client(peer)) as producer:
        await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))


@pytest.mark.parametrize("orderly", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_starts_return_within_one_time_out_and_the_living_broker_is_consumed(
    peer: Peer, second: SecondBroker, topics: Topics, *, orderly: bool
) -> None:
    seen = [Seen() for _ in range(6)]
    shared = client(peer)
    async with Frozen(peer, second, topics) as topic:
        await send_to_the_living(peer, topic)
        consumers = []
        for handler in seen:
            options = PushConsumerOptions(from_where=FIRST, orderly=orderly, drain_s=0)
            made = PushConsumer(unique("group"), client=shared, options=options)
            made.subscribe(topic, handler)
            consumers.append(made)
        began = time.monotonic()
        await asyncio.gather(*(made.start() for made in consumers))
        assert time.monotonic() - began < TIMEOUT_S + 1
        await eventually_async(lambda: all(handler.messages for handler in seen), 8)
        later = Seen()
        late = PushConsumer(
            unique("group"), client=shared, options=PushConsumerOptions(from_where=FIRST, drain_s=0)
        )
        late.subscribe(topic, later)
        began = time.monotonic()
        await late.start()
        assert time.monotonic() - began < 1, "that broker is known to be silent"
        await eventually_async(lambda: later.messages, 8)
        began = time.monotonic()
    await asyncio.gather(*(made.close() for made in (*consumers, late)))


async def test_other_consumers_get_what_the_living_broker_has(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    async with Frozen(peer, second, topics) as topic:
        await send_to_the_living(peer, topic)
        pulling = PullConsumer(
            unique("group"), client=client(peer), options=PullConsumerOptions(from_where=FIRST)
        )
        popping = PopConsumer(
            unique("group"), client=client(peer), options=PopConsumerOptions(from_where=FIRST)
        )
        for consumer in (pulling, popping):
            consumer.subscribe(topic)
            await consumer.start()
        assert [message.body for message in await pulling.poll(8)] == [b"x"]
        for _ in range(2):
            began = time.monotonic()
            [message] = await popping.receive(1, wait_s=8)
            assert time.monotonic() - began < 3
            await popping.ack(message)
            await send_to_the_living(peer, topic)
    await asyncio.gather(pulling.close(), popping.close())


async def test_a_broker_that_answers_again_is_consumed_from(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    seen = Seen()
    options = ClientOptions(name_server=peer.name_server, api_timeout_s=TIMEOUT_S, heartbeat_s=1)
    made = PushConsumer(unique("group"), client=options, options=PushConsumerOptions(from_where=FIRST))
    async with Frozen(peer, second, topics) as topic:
        made.subscribe(topic, seen)
        await made.start()
        await eventually_async(lambda: len(made.queues) == 2, 8)
    async with Producer(unique("producer"), client=client(peer)) as producer:
        await producer.send(Message(topic, b"back"), queue=MessageQueue(topic, "broker-b", 0))
    await eventually_async(lambda: seen.bodies == [b"back"], 10)
    await made.close()


async def test_sends_go_to_the_other_broker(peer: Peer, second: SecondBroker, topics: Topics) -> None:
    """By default, of every kind; the broker that hangs is used again as soon as it answers."""
    made = topics(queues=2)
    second.add_topic(made, 2)
    await known(peer, made, 2)
    options = ProducerOptions(send_timeout_s=3)
    batching = ProducerOptions(auto_batch=True)

    async def check(message: object) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        Producer(unique("producer"), client=client(peer), options=options, checker=check) as producer,
        Producer(unique("batching"), client=client(peer), options=batching) as accumulating,
    ):
        await asyncio.gather(*(producer.send(Message(made, b"before")) for _ in range(8)))
        second.signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            sends = [producer.send(Message(made, b"send")) for _ in range(20)]
            sends += [producer.submit(Message(made, b"submit")) for _ in range(20)]
            sends += [producer.send_batch([Message(made, b"a"), Message(made, b"b")]) for _ in range(4)]
            sends += [accumulating.send(Message(made, b"batched")) for _ in range(20)]
            results = await asyncio.gather(*sends)
            assert {result.queue.broker_name for result in results} == {"broker-a"}
            assert time.monotonic() - began < 3
            began = time.monotonic()
            for _ in range(20):  # the one that hangs is known: no send waits for it
                await producer.send(Message(made, b"later"))
                async with producer.transaction(Message(made, b"transaction")):
                    pass
            assert time.monotonic() - began < 1.5
            with pytest.raises(RequestTimeout):  # no other queue but the chosen one
                await producer.send(Message(made, b"x"), queue=MessageQueue(made, NAME, 0), timeout_s=1)
        finally:
            second.signal(signal.SIGCONT)
        async with asyncio.timeout(5):
            while (await producer.send(Message(made, b"after"))).queue.broker_name != NAME:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_name_server_that_hangs_costs_a_send_little(peer: Peer, topics: Topics) -> None:
    topic = topics()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it connects, and nothing is accepted
        port = silent.getsockname()[1]
        for _ in range(4):  # name servers are called in random order
            options = ClientOptions(name_server=f"127.0.0.1:{port};{peer.name_server}")
            async with Producer(unique("producer"), client=options) as producer:
                began = time.monotonic()
                await producer.send(Message(topic, b"x"))
                assert time.monotonic() - began < 1.5
