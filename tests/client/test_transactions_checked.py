"""Transactions at a broker: what readers see, and which producer is asked about open ones."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import (
    ConfigError,
)
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import (
    TransactionState,
)
from tests.client.conftest import unique
from tests.client.waiting import found_later
from tests.support.eventually import eventually_async

COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK


@pytest.fixture
def topic(topics: Callable[..., str]) -> str:
    return topics(queues=1, message_type="TRANSACTION")


def never_asked(message: ReceivedMessage) -> None:
    raise AssertionError("no check is expected")


async def visible(admin: Admin, topic: str) -> int:
    (queue,) = await admin.queues(topic)
    return await admin.max_offset(queue)


async def until_visible(admin: Admin, topic: str, count: int) -> None:
    async def stored() -> bool:
        return await visible(admin, topic) >= count

    await eventually_async(stored)


async def test_only_what_is_committed_is_seen(name_server: str, topic: str) -> None:
    async with (
        Producer(unique("tx"), name_server=name_server, checker=never_asked) as producer,
        Admin(name_server) as admin,
    ):
        async with producer.transaction(Message(topic, b"yes", keys=["order-1"])) as kept:
            assert await visible(admin, topic) == 0, "half messages are not seen"
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"no")):
                raise ZeroDivisionError
        result = await producer.send_in_transaction(
            Message(topic, b"and yes"), lambda message, argument: argument, COMMIT
        )
        assert result.state is COMMIT
        await until_visible(admin, topic, 2)
        found = await found_later(admin, topic, kept.id)
        assert (found.body, found.transaction_id, found.keys) == (b"yes", kept.id, ("order-1",))
        assert found.get_property("TRAN_MSG") == "true"


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_the_checker_decides_what_was_left_open(name_server: str, topic: str, kind: str) -> None:
    asked: list[tuple[str, bytes]] = []
    undecided = {b"later"}

    def check(message: ReceivedMessage) -> TransactionState | None:
        assert message.topic == topic
        asked.append((message.transaction_id or "", message.body))
        if message.body in undecided:
            undecided.discard(message.body)
            return None
        if message.body == b"fails once" and [body for _, body in asked].count(b"fails once") == 1:
            raise ZeroDivisionError
        return ROLLBACK if message.body == b"no" else COMMIT

    async def check_async(message: ReceivedMessage) -> TransactionState | None:
        await asyncio.sleep(0)
        return check(message)

    checker = check if kind == "plain" else check_async
    async with (
        Producer(unique("tx"), name_server=name_server, checker=checker) as producer,
        Admin(name_server) as admin,
    ):
        ids: dict[bytes, str] = {}
        for body in (b"yes", b"no", b"later", b"fails once"):
            async with producer.transaction(Message(topic, body)) as transaction:
                transaction.leave_unknown()
            ids[body] = transaction.id
        await until_visible(admin, topic, 3)
        await eventually_async(lambda: b"no" in [body for _, body in asked])
        assert all(ids[body] == message_id for message_id, body in asked)
        assert await visible(admin, topic) == 3
        assert [body for _, body in asked].count(b"fails once") >= 2


async def test_another_member_of_the_group_answers_for_one_that_is_gone(name_server: str, topic: str) -> None:
    group = unique("tx")
    async with (
        Producer(group, name_server=name_server, checker=never_asked) as gone,
        gone.transaction(Message(topic, b"x")) as transaction,
    ):
        transaction.leave_unknown()
    asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return COMMIT

    async with Producer(group, name_server=name_server, checker=check) as heir, Admin(name_server) as admin:
        async with heir.transaction(Message(topic, b"y")):
            pass
        await asyncio.wait_for(asked.wait(), 20)
        await until_visible(admin, topic, 2)


async def test_producers_of_one_client_are_checked_each_for_its_own(name_server: str, topic: str) -> None:
    client = ClientOptions(name_server=name_server)
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT

    async with (
        Admin(name_server) as admin,
        Producer(unique("tx"), client=client, checker=check) as stays,
    ):
        async with Producer(unique("tx"), client=client, checker=never_asked) as leaves:
            assert leaves.instance is stays.instance
            async with leaves.transaction(Message(topic, b"x")):
                pass
        async with stays.transaction(Message(topic, b"y")) as transaction:
            transaction.leave_unknown()
        await until_visible(admin, topic, 2)
        assert set(asked) == {b"y"}


async def test_a_producer_that_is_closed_too_early_leaves_it_open(name_server: str, topic: str) -> None:
    producer = Producer(unique("tx"), name_server=name_server, checker=never_asked)
    await producer.start()
    async with producer.transaction(Message(topic, b"x")):
        await producer.close()
    async with Admin(name_server) as admin:
        assert await visible(admin, topic) == 0


async def test_a_producer_without_checker_has_no_transactions(name_server: str, topic: str) -> None:
    async with Producer(unique("tx"), name_server=name_server) as producer:
        with pytest.raises(ConfigError, match="checker"):
            producer.transaction(Message(topic, b"x"))


async def test_transactions_within_a_namespace(name_server: str) -> None:
    client = ClientOptions(name_server=name_server, namespace=unique("ns"))
    topic = unique("t")
    asked: list[str] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return COMMIT

    async with (
        Admin(client=client) as admin,
        Producer(unique("tx"), client=client, checker=check) as producer,
    ):
        await admin.create_topic(topic, 1, message_type="TRANSACTION")
        async with producer.transaction(Message(topic, b"x")):
            pass
        async with producer.transaction(Message(topic, b"y")) as transaction:
            transaction.leave_unknown()
        await until_visible(admin, topic, 2)
        assert set(asked) == {topic}
