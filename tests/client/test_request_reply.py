"""Request and reply: the requester gets the reply of any replier; replies to other clients are not accepted."""

import asyncio
import zlib
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ClientError, NoReplyAddress, RequestReplyTimeout
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    ProducerOptions,
    PushConsumerOptions,
)
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.request_reply import handle_pushed_reply, reply_message, reply_of
from tests.client.conftest import unique
from tests.interop.peers import BROKER, Peer

PUSH = {
    "producerGroup": "PG",
    "topic": "DefaultCluster_REPLY_TOPIC",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "2",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "5",
    "properties": "CORRELATION_ID\x01id-1\x02TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02",
    "reconsumeTimes": "1",
    "unitMode": "false",
    "bornHost": "10.1.2.3:5555",
    "storeHost": "127.0.0.1:10911",
    "storeTimestamp": "1700000000009",
    "bname": "broker-a",
}
ZLIB = 0x1 | 0x300
FROM_FIRST = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)


def push(body: bytes = b"answer", **fields: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, PUSH | fields, body)


def test_a_reply_is_a_message_as_consumers_know_them() -> None:
    reply = reply_of(push(), 1700000000100)
    assert (reply.topic, reply.body, reply.queue_id, reply.flag) == (PUSH["topic"], b"answer", 2, 5)
    assert (reply.tags, reply.keys, reply.message_id) == ("a", ("k1", "k2"), "U1")
    assert (reply.born_host, reply.store_host) == ("10.1.2.3:5555", "127.0.0.1:10911")
    assert (reply.born_timestamp, reply.store_timestamp) == (1700000000000, 1700000000009)
    assert (reply.reconsume_times, reply.broker_name) == (1, "broker-a")
    assert reply.get_property("CORRELATION_ID") == "id-1"
    assert reply.get_property("ARRIVE_TIME") == "1700000000100"


@pytest.mark.parametrize("host", ["[2001:db8::1]:80", "2001:db8::1:80", "/10.0.0.1:80"])
def test_hosts_of_a_reply_in_all_their_forms(host: str) -> None:
    reply = reply_of(push(bornHost=host, storeHost=host), 0)
    assert reply.born_host.endswith(":80")
    assert reply.store_host == reply.born_host
    assert reply.body == b"answer"


def test_a_compressed_reply_is_decompressed_and_one_that_is_only_flagged_is_kept() -> None:
    assert reply_of(push(zlib.compress(b"a" * 9999), sysFlag=str(ZLIB)), 0).body == b"a" * 9999
    assert reply_of(push(b"plain", sysFlag=str(ZLIB)), 0).body == b"plain"
    assert reply_of(push(b"", sysFlag="255"), 0).body == b""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sysFlag", "x"), ("queueId", "99999999999"), ("bornTimestamp", ""), ("bornHost", "nowhere"),
        ("bornHost", "a.b:80"), ("storeHost", "10.0.0.1:99999"), ("properties", "x" * 32768), ("topic", "t" * 32768),
    ],
)  # fmt: skip
def test_an_invalid_push_is_refused_by_its_field(name: str, value: str) -> None:
    with pytest.raises((FieldError, ClientError), match=name):
        reply_of(push(**{name: value}), 0)


def request_received(**properties: str) -> ReceivedMessage:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return reply_of(push(properties=text), 0)


def test_a_reply_goes_to_the_cluster_and_the_client_that_asked() -> None:
    asked = request_received(CORRELATION_ID="id", REPLY_TO_CLIENT="me", TTL="3000", CLUSTER="C", TAGS="x")
    reply = reply_message(asked, b"yes")
    assert (reply.topic, reply.body) == ("C_REPLY_TOPIC", b"yes")
    assert reply.properties == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "id",
        "REPLY_TO_CLIENT": "me",
        "TTL": "3000",
    }


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER"])
def test_what_is_no_request_cannot_be_replied_to(missing: str) -> None:
    properties = {"CORRELATION_ID": "id", "REPLY_TO_CLIENT": "me", "TTL": "3000", "CLUSTER": "C"}
    del properties[missing]
    with pytest.raises(NoReplyAddress) as refused:
        reply_message(request_received(**properties), b"yes")
    assert refused.value.code == 10007


# ---- with a broker ----


def replier(name_server: str, topic: str, answer: Callable[[ReceivedMessage], bytes]) -> PushConsumer:
    """Replies to each message of the topic with a separate producer."""
    consumer = PushConsumer(unique("replier"), name_server=name_server, options=FROM_FIRST)

    @consumer.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        async with Producer(unique("reply"), name_server=name_server) as producer:
            for message in messages:
                await producer.reply(message, answer(message))
        return ConsumeResult.SUCCESS

    return consumer


async def test_each_request_gets_its_own_reply(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics()
    async with (
        replier(name_server, topic, lambda message: message.body[::-1]),
        Producer(unique("ask"), name_server=name_server) as producer,
    ):
        bodies = [b"request %d" % number for number in range(20)]
        replies = await asyncio.gather(*(producer.request(Message(topic, b), timeout_s=20) for b in bodies))
        assert [reply.body for reply in replies] == [body[::-1] for body in bodies]
        assert all(int(reply.properties["ARRIVE_TIME"]) > 0 for reply in replies)


async def test_a_large_reply_comes_back_whole(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=1)
    large = bytes(range(256)) * 400
    async with (
        replier(name_server, topic, lambda message: large),
        Producer(unique("ask"), name_server=name_server, options=ProducerOptions(retries=0)) as producer,
    ):
        assert (await producer.request(Message(topic, b"?"), timeout_s=20)).body == large


async def test_one_of_two_producers_of_a_client_may_close(
    peer: Peer, name_server: str, topics: Callable[..., str]
) -> None:
    if peer.kind == "apache":
        pytest.skip("Apache's broker forgets where a client is as soon as one of its groups leaves")
    topic = topics(queues=1)
    client = ClientOptions(name_server=name_server)
    async with (
        replier(name_server, topic, lambda message: message.body),
        Producer(unique("ask"), client=client) as stays,
    ):
        async with Producer(unique("ask"), client=client) as leaves:
            assert (await leaves.request(Message(topic, b"1"), timeout_s=20)).body == b"1"
        assert (await stays.request(Message(topic, b"2"), timeout_s=20)).body == b"2"


async def test_a_request_goes_to_the_given_queue(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=4)
    wanted = MessageQueue(topic, BROKER, 3)
    async with (
        replier(name_server, topic, lambda message: b"%d" % message.queue_id),
        Producer(unique("ask"), name_server=name_server) as producer,
    ):
        chosen = await producer.request(Message(topic, b"?"), timeout_s=20, queue=wanted)
        assert chosen.body == b"3"
        selected = await producer.request(
            Message(topic, b"?"), timeout_s=20, selector=lambda queues, message: queues[2]
        )
        assert selected.body == b"2"


async def test_requests_and_replies_do_not_wait_to_be_batched(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic = topics(queues=1)
    options = ProducerOptions(auto_batch=True, batch_delay_s=5, send_timeout_s=10)
    consumer = PushConsumer(unique("replier"), name_server=name_server, options=FROM_FIRST)
    async with Producer(unique("both"), name_server=name_server, options=options) as producer:

        async def handle(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, b"yes")

        consumer.subscribe(topic, handle)
        async with consumer:
            reply = await producer.request(Message(topic, b"?"), timeout_s=4)
            assert reply.body == b"yes"


async def test_requests_within_a_namespace(name_server: str) -> None:
    client = ClientOptions(name_server=name_server, namespace=unique("ns"))
    topic = unique("t")
    consumer = PushConsumer(unique("replier"), client=client, options=FROM_FIRST)
    async with Admin(client=client) as admin, Producer(unique("ask"), client=client) as producer:
        await admin.create_topic(topic, 1)

        async def handle(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.reply(message, message.topic.encode())

        consumer.subscribe(topic, handle)
        async with consumer:
            reply = await producer.request(Message(topic, b"?"), timeout_s=20)
            assert reply.body == topic.encode()


async def test_no_reply(name_server: str, topics: Callable[..., str]) -> None:
    async with Producer(unique("ask"), name_server=name_server) as producer:
        with pytest.raises(RequestReplyTimeout) as refused:
            await producer.request(Message(topics(), b"?"), timeout_s=0.5)
        assert refused.value.code == 10006
        assert producer.requests is not None
        assert not producer.requests._waiting


async def test_a_reply_to_a_client_that_is_gone_is_refused_by_the_broker(
    name_server: str, topics: Callable[..., str]
) -> None:
    asked = request_received(
        CORRELATION_ID="id", REPLY_TO_CLIENT="gone@1", TTL="3000", CLUSTER="DefaultCluster"
    )
    async with Producer(
        unique("reply"), name_server=name_server, options=ProducerOptions(retries=0)
    ) as producer:
        with pytest.raises(BrokerError, match=r"gone@1"):
            await producer.reply(asked, b"late")


async def test_a_request_that_is_cancelled_waits_no_more_and_its_reply_is_dropped(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic = topics(queues=1)
    asked: list[ReceivedMessage] = []
    consumer = PushConsumer(unique("replier"), name_server=name_server, options=FROM_FIRST)
    consumer.subscribe(topic)(asked.extend)
    async with consumer, Producer(unique("ask"), name_server=name_server) as producer:
        waiting = asyncio.create_task(producer.request(Message(topic, b"?"), timeout_s=20))
        async with asyncio.timeout(20):
            while not asked:  # noqa: ASYNC110 - filled by another thread
                await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert producer.requests is not None
        assert not producer.requests._waiting
        await producer.reply(asked[0], b"too late")
        answer = handle_pushed_reply(producer.instance, push(), "h:1")
        assert answer.code == 0, "a reply without a waiter is no error"
