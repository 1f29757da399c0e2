"""Pull consumers with two brokers: both are pulled, one may go and come back."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    PullConsumerOptions,
)
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.client.test_two_brokers import known
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
FIRST = ConsumeFromWhere.FIRST_OFFSET


@pytest.fixture
def second(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondBroker]:
    """A new one for each test, since its topics are deleted with it."""
    second = SecondBroker(peer, tmp_path_factory.mktemp("second") / "store")
    yield second
    second.kill()


def feeders(peer: Peer, second: SecondBroker) -> tuple[RawProducer, RawProducer]:
    return RawProducer(peer), RawProducer(SimpleNamespace(address=second.address))  # type: ignore[arg-type]


def client(peer: Peer) -> ClientOptions:
    return ClientOptions(
        name_server=peer.name_server,
        poll_name_server_s=0.3,
        heartbeat_s=0.5,
        rebalance_s=0.5,
        exception_delay_s=0.1,
    )


async def test_pops_wait_at_both_and_get_over_the_end_of_one(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    topic = topics(queues=2)
    second.add_topic(topic, 2)
    await known(peer, topic, 2)
    here, there = feeders(peer, second)
    options = PopConsumerOptions(from_where=FIRST, wait_s=2)
    popping = PopConsumer(unique("group"), options=options, client=client(peer))
    popping.subscribe(topic)

    async def next_body() -> bytes:
        """A broker that is back is found when a receive begins."""
        async with asyncio.timeout(40):
            while not (messages := await popping.receive(1)):
                pass
        [message] = messages
        await popping.ack(message)
        assert (message.broker_name == NAME) == message.body.startswith(b"there")
        return message.body

    async with popping:
        for feeder, body in (
            (here, b"here"),
            (there, b"there"),
            (there, b"there again"),
            (here, b"here again"),
        ):
            waiting = asyncio.create_task(next_body())
            await asyncio.sleep(0.1)
            await asyncio.to_thread(feeder.feed, topic, [body])
            assert await waiting == body
        second.kill()
        await asyncio.to_thread(here.feed, topic, [b"here alone"])
        assert await next_body() == b"here alone"
        await asyncio.to_thread(second.start)
        await known(peer, topic, 2)
        await asyncio.to_thread(there.feed, topic, [b"there once more"])
        while (body := await next_body()) != b"there once more":
            assert body in (b"there", b"there again"), (
                "Apache's broker keeps acks in memory until it is killed"
            )


async def test_polls_bring_both_and_get_over_the_end_of_one(
    peer: Peer, second: SecondBroker, topics: Topics
) -> None:
    topic = topics(queues=2)
    second.add_topic(topic, 2)
    await known(peer, topic, 2)
    here, there = feeders(peer, second)
    pulling = PullConsumer(
        unique("group"), options=PullConsumerOptions(from_where=FIRST), client=client(peer)
    )
    pulling.subscribe(topic)
    seen: list[bytes] = []

    async def poll_until(bodies: set[bytes]) -> None:
        async with asyncio.timeout(40):
            while not bodies <= set(seen):
                seen.extend(message.body for message in await pulling.poll(1))

    async with pulling:
        await eventually_async(lambda: len(pulling.assignment()) == 4)
        for feeder, body in ((here, b"here"), (there, b"there")):
            await asyncio.to_thread(feeder.feed, topic, [body])
        await poll_until({b"here", b"there"})
        second.kill()
        await asyncio.to_thread(here.feed, topic, [b"here alone"])
        await poll_until({b"here alone"})
        await asyncio.to_thread(second.start)
        await known(peer, topic, 2)
        await asyncio.to_thread(there.feed, topic, [b"there once more"])
        await poll_until({b"there once more"})
    assert [seen.count(body) for body in (b"here", b"here alone")] == [1, 1], (
        "its broker was there all the time"
    )
