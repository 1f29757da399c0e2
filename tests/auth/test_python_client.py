"""The Python client with users and rules of both generations: it works with keys, and says what is missing."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.errors import BrokerError, RocketMQError, access_hint
from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    Credentials,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.cli.contexts import Context, Contexts, save_contexts
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.auth.secured import SignedSocket, create_user, grant, secured
from tests.auth.test_plain_acl import FILE, broker_with
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.requests import topic_ext

Consume = Callable[[ClientOptions], Awaitable[list[bytes]]]
FIRST = ConsumeFromWhere.FIRST_OFFSET
TOPIC = "topicB"


def options_of(broker: BrokerProcess, *keys: str) -> ClientOptions:
    assert broker.name_server is not None
    return ClientOptions(
        name_server="{}:{}".format(*broker.name_server), credentials=Credentials(*keys) if keys else None
    )


def send(broker: BrokerProcess, topic: str, *keys: str) -> None:
    async def work() -> None:
        options = ProducerOptions(retries=0)
        async with Producer("P", client=options_of(broker, *keys), options=options) as producer:
            await producer.send(Message(topic, b"body"))

    asyncio.run(work())


def test_users_and_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        for topic in ("T", "Denied"):
            assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        create_user(root, "app", "app-word")
        grant(root, "app", "Topic:T", "Pub")
        send(broker, "T", "app", "app-word")
        for topic, keys, says in (
            ("T", (), "the broker requires a login: pass credentials=Credentials(access_key, secret_key)"),
            ("T", ("app", "wrong"), "the secret key is not that of this user"),
            ("T", ("nobody", "x"), "add the user: firearrow user add nobody"),
            (
                "Denied",
                ("app", "app-word"),
                "grant it: firearrow user grant app Topic:Denied Pub,Sub,Get, or",
            ),
        ):
            with pytest.raises(RocketMQError, match=re.escape(says)):
                send(broker, topic, *keys)
        grant(root, "app", "Topic:T", "Pub", "Sub", "Get")
        grant(root, "app", "Group:TOOLS_CONSUMER", "Sub")
        _export_and_import(broker, tmp_path / "f")


def _export_and_import(broker: BrokerProcess, file: Path) -> None:
    """With the rights for its topic and for the group of the command line, and none for the cluster."""
    context = Context(namesrv=broker.running.name_server, access_key="app", secret_key="app-word")
    save_contexts(Contexts("app", {"app": context}))
    assert here("topic", "export", "T", str(file)).rows[0]["messages"] == 1
    assert here("topic", "import", "T", str(file)).rows[0]["verified"] == 1


def test_accounts(tmp_path: Path) -> None:
    with (
        broker_with(tmp_path, FILE) as broker,
        SignedSocket(broker.address, "rocketmq2", "12345678") as admin,
    ):
        for topic in ("topicA", "topicB"):
            assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        send(broker, "topicB", "RocketMQ", "12345678")
        for topic, keys, says in (
            ("topicB", (), "the broker requires a login"),
            ("topicB", ("RocketMQ", "wrong"), "the secret key is not that of this user"),
            ("topicB", ("unknown", "x"), "add the account unknown to plain_acl.yml"),
            ("topicA", ("RocketMQ", "12345678"), "add topicA=PUB|SUB to the topicPerms of the account"),
        ):
            with pytest.raises(RocketMQError, match=re.escape(says)):
                send(broker, topic, *keys)


async def pushed(client: ClientOptions) -> list[bytes]:
    found: list[bytes] = []
    consumer = PushConsumer("CG", client=client, options=PushConsumerOptions(from_where=FIRST))

    @consumer.subscribe(TOPIC)
    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        found.extend(message.body for message in messages)
        consumer.stop()
        return ConsumeResult.SUCCESS

    await consumer.run()
    return found


async def pulled(client: ClientOptions) -> list[bytes]:
    consumer = PullConsumer("CG", client=client, options=PullConsumerOptions(from_where=FIRST))
    consumer.subscribe(TOPIC)
    async with consumer:
        return [message.body for message in await consumer.poll(10)]


async def popped(client: ClientOptions) -> list[bytes]:
    consumer = PopConsumer("CG", client=client, options=PopConsumerOptions(from_where=FIRST))
    consumer.subscribe(TOPIC)
    async with consumer:
        [message] = await consumer.receive(1, wait_s=10)
        await consumer.ack(message)
        return [message.body]


CONSUMERS: list[Consume] = [pushed, pulled, popped]


@pytest.mark.parametrize("consume", CONSUMERS)
def test_consumers_with_users(tmp_path: Path, caplog: pytest.LogCaptureFixture, consume: Consume) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC)).code == 0
        for user in ("app", "other"):
            create_user(root, user, "app-word")
            grant(root, user, f"Topic:{TOPIC}", "Pub", "Sub")
        grant(root, "app", "Group:CG", "Sub")
        send(broker, TOPIC, "app", "app-word")
        assert consumed(consume, options_of(broker, "app", "app-word")) == [b"body"]
        with pytest.raises((BrokerError, TimeoutError)) as refused:
            consumed(consume, options_of(broker, "other", "app-word"), within_s=2)
        assert "grant it: firearrow user grant other Group:CG" in caplog.text + str(refused.value)


@pytest.mark.parametrize("consume", CONSUMERS)
def test_consumers_with_accounts(tmp_path: Path, caplog: pytest.LogCaptureFixture, consume: Consume) -> None:
    with (
        broker_with(tmp_path, FILE) as broker,
        SignedSocket(broker.address, "rocketmq2", "12345678") as admin,
    ):
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC)).code == 0
        send(broker, TOPIC, "RocketMQ", "12345678")
        assert consumed(consume, options_of(broker, "RocketMQ", "12345678")) == [b"body"]
        with pytest.raises((BrokerError, TimeoutError)) as refused:
            consumed(consume, options_of(broker, "unknown", "x"), within_s=2)
        assert "add the account unknown to plain_acl.yml" in caplog.text + str(refused.value)


def consumed(consume: Consume, client: ClientOptions, within_s: float = 20) -> list[bytes]:
    async def work() -> list[bytes]:
        async with asyncio.timeout(within_s):
            return await consume(client)

    return asyncio.run(work())


def test_other_errors_have_no_hint() -> None:
    assert access_hint(16, "the broker[1.2.3.4] sending message is forbidden") == ""
    assert access_hint(17, "username cannot be null.") == ""
    assert str(BrokerError(16, "no", "b")) == "b: 16 NO_PERMISSION: no"
