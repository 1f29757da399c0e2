"""Bad networks between a half message and its end, and between a request and its reply. Everything passes a proxy."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import RequestReplyTimeout, RequestTimeout, TransportError
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    ProducerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.interop.peers import BROKER, Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


def quick(name_server: str) -> ClientOptions:
    return ClientOptions(name_server=name_server, api_timeout_s=1, connect_timeout_s=1, heartbeat_s=0.5)


def commits(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


async def until_visible(peer: Peer, topic: str, count: int) -> None:
    """Asked over a separate connection."""
    queue = MessageQueue(topic, BROKER, 0)
    async with Admin(peer.name_server) as admin:

        async def stored() -> bool:
            return await admin.max_offset(queue) >= count

        await eventually_async(stored, 30)


async def test_an_end_that_is_lost_is_made_up_for_by_the_check(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")
    async with (
        Detour(peer) as detour,
        Producer(unique("tx"), client=quick(detour.name_server), checker=commits) as producer,
    ):
        async with producer.transaction(Message(topic, b"x")) as transaction:
            detour.broker.reset_requests = 1
        assert transaction.state is TransactionState.COMMIT
        await until_visible(peer, topic, 1)
        assert detour.broker.reset_requests == 0, "the proxy did not pass the end on"


async def test_a_broker_that_cannot_be_reached_at_the_end_asks_later(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")
    async with (
        Detour(peer) as detour,
        Producer(unique("tx"), client=quick(detour.name_server), checker=commits) as producer,
    ):
        async with producer.transaction(Message(topic, b"x")) as transaction:
            await detour.broker.shut()
        assert transaction.state is TransactionState.COMMIT, "what failed is logged, not raised"
        await detour.broker.open()
        await until_visible(peer, topic, 1)


async def test_a_half_that_cannot_be_sent_never_begins(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")
    options = ProducerOptions(retries=0, send_timeout_s=0.5)
    async with (
        Detour(peer) as detour,
        Producer(
            unique("tx"), client=quick(detour.name_server), checker=commits, options=options
        ) as producer,
    ):
        async with producer.transaction(Message(topic, b"x")):
            pass
        detour.broker.flowing.clear()
        with pytest.raises(TransportError):
            async with producer.transaction(Message(topic, b"y")):
                raise AssertionError("the block must not run")
        detour.broker.flowing.set()
        await until_visible(peer, topic, 1)


@asynccontextmanager
async def replying(peer: Peer, topic: str) -> AsyncIterator[PushConsumer]:
    """A consumer with a good connection that replies with the request's body."""
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(unique("replier"), name_server=peer.name_server, options=options)
    async with Producer(unique("reply"), name_server=peer.name_server) as producer:

        async def handle(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, message.body)

        consumer.subscribe(topic, handle)
        async with consumer:
            yield consumer


async def test_requests_go_on_after_a_reset(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with (
        replying(peer, topic),
        Detour(peer) as detour,
        Producer(unique("ask"), client=quick(detour.name_server)) as producer,
    ):
        for number in range(5):
            reply = await producer.request(Message(topic, b"%d" % number), timeout_s=20)
            assert reply.body == b"%d" % number
            detour.broker.reset()


async def test_silence_ends_in_time_and_replies_come_again(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    async with (
        replying(peer, topic),
        Detour(peer) as detour,
        Producer(unique("ask"), client=quick(detour.name_server)) as producer,
    ):
        assert (await producer.request(Message(topic, b"1"), timeout_s=20)).body == b"1"
        detour.broker.flowing.clear()
        began = asyncio.get_running_loop().time()
        with pytest.raises((RequestTimeout, RequestReplyTimeout)):
            await producer.request(Message(topic, b"2"), timeout_s=1)
        assert asyncio.get_running_loop().time() - began < 3
        detour.broker.flowing.set()
        assert (await producer.request(Message(topic, b"3"), timeout_s=20)).body == b"3"
