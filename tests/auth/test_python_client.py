"""The Python client with users and rules of both generations: it works with keys, and says what is missing."""

import asyncio
import re
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.errors import BrokerError, RocketMQError, access_hint
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, Credentials, ProducerOptions
from firearrow.client.send.producer import Producer
from tests.auth.secured import SignedSocket, create_user, grant, secured
from tests.auth.test_plain_acl import FILE, broker_with
from tests.support.broker_process import BrokerProcess
from tests.support.requests import topic_ext


def send(broker: BrokerProcess, topic: str, *keys: str) -> None:
    async def work() -> None:
        assert broker.name_server is not None
        client = ClientOptions(
            name_server="{}:{}".format(*broker.name_server), credentials=Credentials(*keys) if keys else None
        )
        options = ProducerOptions(retries=0)
        async with Producer("P", client=client, options=options) as producer:
            await producer.send(Message(topic, b"body"))

    asyncio.run(work())


def test_users_and_rules(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        for topic in ("T", "Denied"):
            assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        create_user(root, "app", "app-word")
        grant(root, "app", "Topic:T", "Pub")
        send(broker, "T", "app", "app-word")
        for topic, keys, told in (
            ("T", (), "the broker requires a login: pass credentials=Credentials(access_key, secret_key)"),
            ("T", ("app", "wrong"), "the secret key is not that of this user"),
            ("T", ("nobody", "x"), "add the user: firearrow user add nobody"),
            ("Denied", ("app", "app-word"), "grant it: firearrow user grant app Topic:Denied Pub"),
        ):
            with pytest.raises(RocketMQError, match=re.escape(told)):
                send(broker, topic, *keys)


def test_accounts(tmp_path: Path) -> None:
    with (
        broker_with(tmp_path, FILE) as broker,
        SignedSocket(broker.address, "rocketmq2", "12345678") as admin,
    ):
        for topic in ("topicA", "topicB"):
            assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        send(broker, "topicB", "RocketMQ", "12345678")
        for topic, keys, told in (
            ("topicB", (), "the broker requires a login"),
            ("topicB", ("RocketMQ", "wrong"), "the secret key is not that of this user"),
            ("topicB", ("unknown", "x"), "add the account unknown to plain_acl.yml"),
            ("topicA", ("RocketMQ", "12345678"), "add topicA=PUB|SUB to the topicPerms of the account"),
        ):
            with pytest.raises(RocketMQError, match=re.escape(told)):
                send(broker, topic, *keys)


def test_other_errors_have_no_hint() -> None:
    assert access_hint(16, "the broker[1.2.3.4] sending message is forbidden") == ""
    assert access_hint(17, "username cannot be null.") == ""
    assert str(BrokerError(16, "no", "b")) == "b: 16 NO_PERMISSION: no"
