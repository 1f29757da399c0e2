"""Operators' commands at a real broker with real members of groups."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import DISCARDED, MessageTrack, Operations, RequestMode, Track
from firearrow.client.base.errors import BrokerError, ClientError
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    MessageModel,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.waiting import found_later
from tests.interop.peers import BROKER, CLUSTER
from tests.support.eventually import eventually_async

FROM_FIRST = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)


class Handled:
    """A handler that records its messages."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


async def stored(admin: Admin, producer: Producer, topic: str, tags: str) -> ReceivedMessage:
    sent = await producer.send(Message(topic, tags.encode(), tags=tags))
    return await admin.view_message(topic, sent.offset_message_id)


async def becomes(tracks: list[MessageTrack], operations: Operations, message: ReceivedMessage) -> None:
    """Offsets are stored periodically."""
    async with asyncio.timeout(20):
        while (found := await operations.message_tracks(message)) != tracks:
            assert {each.group for each in found} <= {each.group for each in tracks}
            await asyncio.sleep(0.05)


async def test_how_far_a_message_came_in_each_group(name_server: str, topics: Callable[..., str]) -> None:
    topic, handled = topics(queues=1), Handled()
    client = ClientOptions(name_server=name_server, persist_offsets_s=0.1)
    push = PushConsumer("a" + unique("push"), client=client, options=FROM_FIRST)
    push.subscribe(topic, handled, tags="red")
    async with (
        Admin(name_server) as admin,
        Producer(unique("p"), name_server=name_server) as producer,
        push,
    ):
        operations = Operations(admin)
        red, blue = [await stored(admin, producer, topic, tags) for tags in ("red", "blue")]
        await becomes([MessageTrack(push.group, Track.CONSUMED)], operations, red)
        await producer.send(Message(topic, b"red again", tags="red"))
        await becomes([MessageTrack(push.group, Track.CONSUMED_BUT_FILTERED)], operations, blue)
        assert handled.bodies == [b"red", b"red again"]
        gone = "b" + unique("gone")
        await admin.create_group(gone)
        await admin.update_offset(gone, MessageQueue(topic, BROKER, 0), 0)
        tracks = await operations.message_tracks(red)
        assert [(each.group, each.track) for each in tracks] == [
            (push.group, Track.CONSUMED),
            (gone, Track.NOT_ONLINE),
        ]
        assert tracks[1].error is not None


async def test_groups_of_which_only_their_members_know(name_server: str, topics: Callable[..., str]) -> None:
    topic, everybody = topics(queues=1), unique("everybody")
    options = PushConsumerOptions(model=MessageModel.BROADCASTING, from_where=ConsumeFromWhere.FIRST_OFFSET)
    push = PushConsumer("a" + everybody, name_server=name_server, options=options)
    push.subscribe(topic, Handled())
    pull = PullConsumer(
        "b" + everybody,
        name_server=name_server,
        options=PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    pull.subscribe(topic)
    async with (
        Admin(name_server) as admin,
        Producer(unique("p"), name_server=name_server) as producer,
        push,
        pull,
    ):
        message = await stored(admin, producer, topic, "x")
        await becomes(
            [MessageTrack(push.group, Track.CONSUME_BROADCASTING), MessageTrack(pull.group, Track.PULL)],
            Operations(admin),
            message,
        )


async def test_a_message_is_handled_once_more_because_an_operator_wants_it(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, handled = topics(queues=1), Handled()
    push = PushConsumer(unique("push"), name_server=name_server, options=FROM_FIRST)
    push.subscribe(topic, handled)
    async with (
        Admin(name_server) as admin,
        Producer(unique("p"), name_server=name_server) as producer,
        push,
    ):
        message = await stored(admin, producer, topic, "x")
        await eventually_async(lambda: handled.bodies)
        assert push.client_id is not None
        (member,) = (await admin.consumers(push.group)).connections
        assert member.client_id == push.client_id
        answer = await Operations(admin).consume_directly(push.group, push.client_id, message)
        assert answer["consumeResult"] == "CR_SUCCESS"
        assert handled.bodies == [b"x", b"x"]
        assert topic in (await admin.consumers(push.group)).subscriptions
        assert "mqTable" in await admin.running_info(push.group, push.client_id)
        with pytest.raises(BrokerError):
            await Operations(admin).consume_directly(push.group, "nobody", message)


async def test_a_half_message_that_was_given_up_is_checked_again(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")
    known = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState | None:
        return TransactionState.COMMIT if known.is_set() else None

    async with (
        Admin(name_server) as admin,
        Producer(unique("tx"), name_server=name_server, checker=check) as producer,
    ):
        checks = (await admin.broker_config(BROKER))["transactionCheckMax"]
        await admin.update_broker_config(BROKER, {"transactionCheckMax": "1"})
        try:
            async with producer.transaction(Message(topic, b"x")) as transaction:
                transaction.leave_unknown()
            discarded = await found_later(admin, DISCARDED, transaction.id, topic_comes=True)
            known.set()
            await Operations(admin).resume_check(topic, discarded.offset_message_id)
            assert (await found_later(admin, topic, transaction.id, topic_comes=True)).body == b"x"
        finally:
            await admin.update_broker_config(BROKER, {"transactionCheckMax": checks})
        with pytest.raises(ClientError):
            await Operations(admin).resume_check(topic, "nonsense")


async def test_progress_is_copied_to_another_group(name_server: str, topics: Callable[..., str]) -> None:
    topic, source, target = topics(queues=2), unique("source"), unique("target")
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        operations = Operations(admin)
        for _ in range(4):
            await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, BROKER, 0))
        for group in (source, target):
            await admin.create_group(group)
        for queue, offset in zip(await admin.queues(topic), (3, 0), strict=True):
            await admin.update_offset(source, queue, offset)
        await operations.clone_offsets(source, target, topic)
        assert [await admin.offset(target, queue) for queue in await admin.queues(topic)] == [3, 0]
        assert topic in await operations.topics_of(target)


async def test_a_group_is_forbidden_to_read(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(), unique("group")
    async with Admin(name_server) as admin:
        operations = Operations(admin)
        await admin.create_group(group)
        assert await operations.readable(group, topic)
        assert not await operations.readable(group, topic, allowed=False)
        assert not await operations.readable(group, topic)
        assert await operations.readable(group, topic, allowed=True)


async def test_members_are_switched_to_pop_and_back(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=1)
    options = PushConsumerOptions(client_rebalance=False, from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(unique("group"), name_server=name_server, options=options)
    receipts: list[bool] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        receipts.extend(message.get_property("POP_CK") is not None for message in messages)

    consumer.subscribe(topic, handle)
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        await admin.create_group(consumer.group)
        await Operations(admin).set_request_mode(topic, consumer.group, RequestMode.POP)
        async with consumer:
            await producer.send(Message(topic, b"x"))
            await eventually_async(lambda: receipts, 30)
        assert receipts[0], "it came by a POP"
        await Operations(admin).set_request_mode(topic, consumer.group, RequestMode.PULL)


async def test_producers_of_a_group_and_topics_of_a_cluster(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(), unique("producing")
    async with Admin(name_server) as admin, Producer(group, name_server=name_server) as producer:
        await producer.send(Message(topic, b"x"))
        await producer.instance.heartbeat_all()
        operations = Operations(admin)
        (member,) = (await operations.producers())[group]
        assert (member.client_id, member.language) == (producer.instance.client_id, "PYTHON")
        assert (await admin.producers(group))[0].client_id == member.client_id
        assert topic in await operations.topics_of_cluster(CLUSTER)


async def test_name_servers_keep_values(name_server: str) -> None:
    space = unique("space")
    async with Admin(name_server) as admin:
        operations = Operations(admin)
        assert await operations.value(space, "k") is None
        await operations.put_value(space, "k", "v 1;=")
        assert await operations.value(space, "k") == "v 1;="
        await operations.delete_value(space, "k")
        assert await operations.value(space, "k") is None
