"""SendBack: the request, the message that is published if it fails, and what the caller gets."""

from dataclasses import dataclass, field

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, RequestTimeout
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.consume.send_back import SendBack
from tests.client.records import received

QUEUE = MessageQueue("orders", "broker-a", 2)


@dataclass
class Broker:
    """Takes requests and messages, and fails them if configured to."""

    call_error: Exception | None = None
    publish_error: Exception | None = None
    code: int = 0
    calls: list[tuple[str, RemotingCommand, float, str | None]] = field(default_factory=list)
    published: list[Message] = field(default_factory=list)

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.calls.append((address, command, timeout_s, None))
        return command.answer(self.code, "refused")

    async def call_master(
        self, broker_name: str, command: RemotingCommand, timeout_s: float, *, topic: str | None = None
    ) -> RemotingCommand:
        self.calls.append((broker_name, command, timeout_s, topic))
        if self.call_error is not None:
            raise self.call_error
        return command.answer()

    async def publish(self, message: Message) -> None:
        if self.publish_error is not None:
            raise self.publish_error
        self.published.append(message)

    def send_back(self, namespace: str | None = None) -> SendBack:
        return SendBack(
            group="workers",
            max_reconsume_times=16,
            caller=self,
            publish=self.publish,
            namespace=Namespace(namespace),
        )


async def test_the_broker_is_asked_to_deliver_the_stored_message_again() -> None:
    broker = Broker()
    (message,) = received(QUEUE, [7], UNIQ_KEY="AC10")
    assert await broker.send_back().back(message, 5)
    ((broker_name, command, timeout_s, topic),) = broker.calls
    assert (broker_name, timeout_s, topic) == ("broker-a", 5, "orders")
    assert command.code == RequestCode.CONSUMER_SEND_MSG_BACK
    assert command.body == b""
    assert command.ext == {
        "offset": str(message.physical_offset),
        "group": "workers",
        "delayLevel": "5",
        "originMsgId": "AC10",
        "originTopic": "orders",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "bname": "broker-a",
    }
    assert broker.published == []


@pytest.mark.parametrize(
    "error", [RequestTimeout("late"), BrokerError(1, "no", "b"), ClientError("who?"), ValueError("a bug")]
)
async def test_if_that_fails_the_message_is_published_to_the_retry_topic(error: Exception) -> None:
    broker = Broker(call_error=error)
    (message,) = received(
        QUEUE,
        [7],
        b"\x00body",
        reconsume_times=2,
        UNIQ_KEY="AC10",
        TAGS="a",
        KEYS="k1 k2",
        WAIT="false",
        DELAY="3",
        TRAN_MSG="true",
        mine="x",
    )
    assert await broker.send_back().back(message, -1)
    (published,) = broker.published
    assert (published.topic, published.body) == ("%RETRY%workers", b"\x00body")
    assert published.properties == {
        "mine": "x",
        "ORIGIN_MESSAGE_ID": "AC10",
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
    }
    assert (published.tags, published.keys, published.unique_id) == ("a", ("k1", "k2"), "AC10")
    assert (published.delay_level, published.wait_store) == (5, False)
    assert message.properties["TRAN_MSG"] == "true"


async def test_the_first_id_of_a_message_stays() -> None:
    broker = Broker()
    (message,) = received(QUEUE, [7], UNIQ_KEY="SECOND", ORIGIN_MESSAGE_ID="FIRST")
    assert await broker.send_back().publish(message)
    assert broker.published[0].properties["ORIGIN_MESSAGE_ID"] == "FIRST"


@pytest.mark.parametrize("error", [ClientError("gone, too"), RuntimeError("cannot be opened")])
async def test_a_message_that_no_broker_takes_is_reported(error: Exception) -> None:
    broker = Broker(call_error=ClientError("gone"), publish_error=error)
    (message,) = received(QUEUE, [7])
    assert not await broker.send_back().back(message)


async def test_brokers_of_static_topics_are_not_asked() -> None:
    broker = Broker()
    (message,) = received(MessageQueue("orders", "__syslo__global__", 0), [7])
    assert await broker.send_back().back(message)
    assert broker.calls == []
    assert len(broker.published) == 1


async def test_without_the_name_of_its_broker_the_store_host_is_asked() -> None:
    broker = Broker()
    (message,) = received(QUEUE, [7])
    message.broker_name = ""
    assert await broker.send_back().back(message)
    assert broker.calls[0][0] == message.store_host
    broker.code = 1
    assert await broker.send_back().back(message)
    assert len(broker.published) == 1


async def test_topics_go_out_with_their_namespace() -> None:
    broker = Broker()
    (message,) = received(QUEUE, [7])
    assert await broker.send_back("tenant").back(message)
    assert broker.calls[0][1].ext["originTopic"] == "tenant%orders"
    assert await broker.send_back("tenant").publish(message)
    assert broker.published[0].properties["RETRY_TOPIC"] == "tenant%orders"
