"""Two brokers of one cluster: transactions, requests and administration, while one is there, gone and back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.peers import BROKER, Peer
from tests.support.eventually import eventually_async

FROM_FIRST = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)


@pytest.fixture(scope="module")
def second(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondBroker]:
    second = SecondBroker(peer, tmp_path_factory.mktemp("second") / "store")
    yield second
    second.kill()


@pytest.fixture
def client(name_server: str) -> ClientOptions:
    """Polls often."""
    return ClientOptions(name_server=name_server, poll_name_server_s=0.3, heartbeat_s=0.5)


async def becomes(wanted: object, ask: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(40):
        while await ask() != wanted:  # noqa: ASYNC110 - brokers send no notification
            await asyncio.sleep(0.05)


async def topic_of_both(admin: Admin, message_type: str | None = None) -> str:
    topic = unique("both")
    await becomes({BROKER, NAME}, lambda: masters(admin))
    assert await admin.create_topic(topic, 1, message_type=message_type) == [BROKER, NAME]
    return topic


async def masters(admin: Admin) -> set[str]:
    return set((await admin.cluster_info()).brokers)


async def ends(admin: Admin, topic: str) -> list[int]:
    return [await admin.max_offset(MessageQueue(topic, name, 0)) for name in (BROKER, NAME)]


async def test_administrators_see_both_as_one(client: ClientOptions, second: SecondBroker) -> None:
    group = unique("group")
    async with Admin(client=client) as admin, Producer(unique("p"), client=client) as producer:
        topic = await topic_of_both(admin)
        queues = await admin.queues(topic)
        assert queues == [MessageQueue(topic, BROKER, 0), MessageQueue(topic, NAME, 0)]
        for queue in queues:
            await producer.send(Message(topic, queue.broker_name.encode(), keys=["same"]), queue=queue)
        await becomes([1, 1], lambda: ends(admin, topic))
        assert set(await admin.topic_stats(topic)) == set(queues)

        async def found() -> set[tuple[str, bytes]]:
            return {(each.broker_name, each.body) for each in await admin.messages_by_key(topic, "same")}

        await becomes({(BROKER, BROKER.encode()), (NAME, NAME.encode())}, found)
        await admin.create_group(group)
        for queue in queues:
            await admin.update_offset(group, queue, 0)
        lag = await admin.consumer_lag(group, topic)
        assert {queue: each.messages for queue, each in lag.queues.items()} == dict.fromkeys(queues, 1)
        assert await admin.reset_offsets(group, topic, None) == dict.fromkeys(queues, 1)
        await admin.delete_topic(topic)
        assert topic not in await admin.topics()


async def test_requests_by_either_broker_are_replied_to(client: ClientOptions, second: SecondBroker) -> None:
    async with Admin(client=client) as admin, Producer(unique("ask"), client=client) as producer:
        topic = await topic_of_both(admin)
        consumer = PushConsumer(unique("replier"), client=client, options=FROM_FIRST)

        async def handle(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, message.broker_name.encode())

        consumer.subscribe(topic, handle)
        async with consumer:
            for name in (BROKER, NAME):
                queue = MessageQueue(topic, name, 0)
                reply = await producer.request(Message(topic, b"?"), timeout_s=20, queue=queue)
                assert reply.body == name.encode()


async def test_a_broker_that_comes_back_asks_about_what_was_left_open(
    client: ClientOptions, second: SecondBroker
) -> None:
    asked: list[str] = []
    known = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState | None:
        asked.append(message.broker_name or message.store_host)
        return TransactionState.COMMIT if known.is_set() else None

    async with (
        Admin(client=client) as admin,
        Producer(unique("tx"), client=client, checker=check) as producer,
    ):
        topic = await topic_of_both(admin, "TRANSACTION")
        brokers: set[str] = set()
        while brokers != {BROKER, NAME}:
            async with producer.transaction(Message(topic, b"x")) as transaction:
                transaction.leave_unknown()
            brokers.add(transaction.sent.queue.broker_name)
        second.kill()
        asked.clear()
        second.start()
        known.set()

        async def all_there() -> bool:
            return all(end > 0 for end in await ends(admin, topic))

        await becomes({BROKER, NAME}, lambda: masters(admin))
        await eventually_async(lambda: asked, 40)
        await becomes(True, all_there)
