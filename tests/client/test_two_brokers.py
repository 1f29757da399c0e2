"""Two brokers of one cluster: clients use both, survive the end of one, and find it again when it is back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    ProducerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
QUEUES = 2


@pytest.fixture(scope="module")
def second(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondBroker]:
    second = SecondBroker(peer, tmp_path_factory.mktemp("second") / "store")
    yield second
    second.kill()


def brokers_of(peer: Peer, topic: str) -> int:
    """How many brokers the name server knows."""
    with ClientSocket(address(peer.name_server)) as connection:
        answer = connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return answer.body.count(b'"brokerAddrs"')


def client(peer: Peer) -> ClientOptions:
    return ClientOptions(
        name_server=peer.name_server, poll_name_server_s=0.3, heartbeat_s=0.5, rebalance_s=0.5
    )


class Receiving:
    """A consumer, and how often it was given each body from each broker."""

    def __init__(self, peer: Peer, topic: str, group: str, *, orderly: bool = False) -> None:
        self.seen: Counter[tuple[str, bytes]] = Counter()
        self.consumer = PushConsumer(
            group,
            options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, orderly=orderly),
            client=client(peer),
        )
        self.consumer.subscribe(topic, self._handle)

    async def _handle(self, messages: list[ReceivedMessage]) -> None:
        self.seen.update((message.broker_name, message.body) for message in messages)

    @property
    def bodies(self) -> set[bytes]:
        return {body for _, body in self.seen}


class Sending:
    """A producer that sends numbers one after another until stopped."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.sent: list[tuple[str, bytes]] = []
        self.stopped = False

    async def run(self) -> None:
        number = 0
        while not self.stopped:
            number += 1
            body = b"%d" % number
            result = await self._producer.send(Message(self._topic, body))
            self.sent.append((result.queue.broker_name, body))
            await asyncio.sleep(0.002)

    def at(self, broker_name: str) -> int:
        return sum(name == broker_name for name, _ in self.sent)


async def known(peer: Peer, topic: str, brokers: int) -> None:
    await eventually_async(lambda: brokers_of(peer, topic) == brokers, 40)


async def test_both_brokers_are_sent_to_and_consumed_from(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    topic = topics(queues=QUEUES)
    second.add_topic(topic, QUEUES)
    await known(peer, topic, 2)
    receiving = Receiving(peer, topic, unique("group"))
    async with Producer(unique("producer"), client=client(peer)) as producer, receiving.consumer:
        results = [await producer.send(Message(topic, b"%d" % number)) for number in range(40)]
        counts = Counter(result.queue.broker_name for result in results)
        assert counts.keys() == {"broker-a", NAME}
        assert min(counts.values()) >= 18, "one after the other, but for where each way begins"
        assert len({result.queue for result in results}) == 2 * QUEUES
        await eventually_async(lambda: len(receiving.seen) == 40, 20)
    assert receiving.bodies == {b"%d" % number for number in range(40)}


@pytest.mark.parametrize("orderly", [False, True])
async def test_one_of_two_brokers_is_killed_and_comes_back_under_load(
    orderly: bool, peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    """Every send that succeeded is consumed; what the surviving broker stored, exactly once."""
    topic = topics(queues=QUEUES)
    second.add_topic(topic, QUEUES)
    await known(peer, topic, 2)
    receiving = Receiving(peer, topic, unique("group"), orderly=orderly)
    options = ProducerOptions(send_timeout_s=10, retries=5)
    async with (
        Producer(unique("producer"), options=options, client=client(peer)) as producer,
        receiving.consumer,
    ):
        sending = Sending(producer, topic)
        running = asyncio.create_task(sending.run())
        await eventually_async(lambda: running.done() or sending.at(NAME) >= 100, 20)
        second.kill()
        at_kill = sending.at("broker-a")
        await eventually_async(lambda: running.done() or sending.at("broker-a") >= at_kill + 200, 30)
        before = sending.at(NAME)
        await asyncio.to_thread(second.start)
        await eventually_async(lambda: running.done() or sending.at(NAME) >= before + 100, 60)
        sending.stopped = True
        await running
        await eventually_async(lambda: receiving.bodies >= {body for _, body in sending.sent}, 60)
    assert {times for (name, _), times in receiving.seen.items() if name == "broker-a"} == {1}


async def test_a_member_that_leaves_and_one_that_joins_under_load_share_both_brokers(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    topic = topics(queues=QUEUES)
    second.add_topic(topic, QUEUES)
    await known(peer, topic, 2)
    group = unique("group")
    members = [Receiving(peer, topic, group) for _ in range(3)]
    async with Producer(unique("producer"), client=client(peer)) as producer:
        sending = Sending(producer, topic)
        running = asyncio.create_task(sending.run())
        await members[0].consumer.start()
        await eventually_async(lambda: len(members[0].seen) >= 50, 20)
        await members[1].consumer.start()
        await eventually_async(lambda: len(members[1].seen) >= 50, 20)
        await members[0].consumer.close()
        await members[2].consumer.start()
        await eventually_async(lambda: len(members[2].seen) >= 50, 20)
        sending.stopped = True
        await running
        sent = {body for _, body in sending.sent}
        await eventually_async(lambda: members[0].bodies | members[1].bodies | members[2].bodies >= sent, 30)
        for member in members[1:]:
            await member.consumer.close()


async def test_the_only_broker_of_a_topic_is_killed_and_back(peer: Peer, second: SecondBroker) -> None:
    """Until then sends fail with an error of the client; those that succeeded are there afterwards."""
    topic = unique("topic")
    second.add_topic(topic, QUEUES)
    await known(peer, topic, 1)
    receiving = Receiving(peer, topic, unique("group"))
    async with Producer(unique("producer"), client=client(peer)) as producer, receiving.consumer:
        await producer.send(Message(topic, b"before"))
        await eventually_async(lambda: receiving.bodies == {b"before"}, 20)
        second.kill()
        with pytest.raises(ClientError):
            await producer.send(Message(topic, b"gone"))
        await asyncio.to_thread(second.start)
        await known(peer, topic, 1)
        await eventually_async(lambda: producer.instance.routes.master(NAME) is not None, 20)
        await producer.send(Message(topic, b"after"))
        await eventually_async(lambda: receiving.bodies >= {b"before", b"after"}, 30)
