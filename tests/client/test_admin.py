"""What administrators see and change, at a real broker; and invalid answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.admin_api.message_queries import decode_offset_id
from firearrow.client.admin_api.overview import Overview
from firearrow.client.admin_api.records import (
    GroupConfig,
    cluster_info,
    consumer_lag,
    group_config,
    read,
    topic_stats,
)
from firearrow.client.admin_api.requests import integer_of
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NoRoute, NotRunning
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ClientOptions
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.interop.peers import BROKER, CLUSTER, Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async
from tests.support.requests import send_ext

QUEUE = MessageQueue("t", "broker-a", 1)


@pytest.fixture
def broker(peer: Peer) -> Iterator[ClientSocket]:
    with ClientSocket(address(peer.address)) as connection:
        yield connection


def send(
    broker: ClientSocket, topic: str, body: bytes, queue_id: int = 0, **properties: str
) -> dict[str, str]:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, i=text), body)
    assert answer.code == 0, answer.remark
    return answer.ext


async def becomes(wanted: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Apache's broker dispatches messages to queues and index a moment later."""
    found: list[object] = []

    async def equal() -> bool:
        found[:] = [await ask()]
        return found == [wanted]

    await eventually_async(equal, what=lambda: f"still {found!r}, not {wanted!r}")


async def test_a_topic_is_made_seen_changed_and_deleted(name_server: str) -> None:
    topic = unique("made")
    async with Admin(name_server) as admin:
        assert await admin.create_topic(topic, 3) == [BROKER]
        assert topic in await admin.topics()
        assert [queue.queue_id for queue in await admin.queues(topic)] == [0, 1, 2]
        await admin.create_topic(topic, 5, read_queues=6, message_type="FIFO")
        config = (await admin.topic_config(topic))[BROKER]
        assert (config.topic, config.read_queues, config.write_queues, config.perm) == (topic, 6, 5, 6)
        assert len(await admin.topic_stats(topic)) == 6
        await admin.delete_topic(topic)
        assert topic not in await admin.topics()
        with pytest.raises(NoRoute):
            await admin.queues(topic)


async def test_the_type_of_messages_is_an_attribute(name_server: str) -> None:
    topic = unique("typed")
    async with Admin(name_server) as admin:
        await admin.create_topic(topic, 1, message_type="TRANSACTION")
        assert (await admin.topic_config(topic))[BROKER].message_type == "TRANSACTION"


async def test_names_that_brokers_refuse_are_refused_here(name_server: str) -> None:
    async with Admin(name_server) as admin:
        for name in ("TBW102", "rmq_sys_x", "a b", "", "x" * 128):
            with pytest.raises(ConfigError):
                await admin.create_topic(name)
        with pytest.raises(ConfigError):
            await admin.create_group("DEFAULT_CONSUMER")
        with pytest.raises(ClientError):
            await admin.create_topic(unique("t"), cluster="no-such-cluster")


async def test_an_admin_that_was_not_started_says_so(name_server: str) -> None:
    with pytest.raises(NotRunning):
        await Admin(name_server).topics()


async def sampled(admin: Admin) -> dict[str, str]:
    """Apache's broker has no statistics in its first second and answers with a stack trace."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await admin.broker_runtime(BROKER)
            except BrokerError as error:
                if "NoSuchElementException" not in error.remark:
                    raise


async def test_clusters_and_brokers(name_server: str, peer: Peer) -> None:
    async with Admin(name_server) as admin:
        info = await admin.cluster_info()
        assert info.clusters == {CLUSTER: (BROKER,)}
        assert info.brokers == {BROKER: {0: peer.address}}
        assert (await admin.broker_config(BROKER))["brokerName"] == BROKER
        assert "putTps" in await sampled(admin)
        with pytest.raises(ClientError):
            await admin.broker_runtime("no-such-broker")


async def test_a_brokers_option_is_changed(name_server: str) -> None:
    async with Admin(name_server) as admin:
        before = (await admin.broker_config(BROKER))["defaultQueryMaxNum"]
        await admin.update_broker_config(BROKER, {"defaultQueryMaxNum": "31"})
        assert (await admin.broker_config(BROKER))["defaultQueryMaxNum"] == "31"
        await admin.update_broker_config(BROKER, {"defaultQueryMaxNum": before})
        with pytest.raises(ConfigError):
            await admin.update_broker_config(BROKER, {"a": "1\nb=2"})


async def test_offsets_of_a_queue(name_server: str, topics: Callable[..., str], broker: ClientSocket) -> None:
    topic = topics(queues=1)
    queue = MessageQueue(topic, BROKER, 0)
    async with Admin(name_server) as admin:
        assert (await admin.max_offset(queue), await admin.earliest_ms(queue)) == (0, -1)
        before_ms = time.time_ns() // 1_000_000 - 1000
        for number in range(3):
            send(broker, topic, b"%d" % number)
        await becomes(3, lambda: admin.max_offset(queue))
        assert await admin.min_offset(queue) == 0
        assert await admin.earliest_ms(queue) > before_ms
        assert await admin.offset_at(queue, before_ms) == 0
        assert await admin.offset_at(queue, before_ms + 3_600_000) == 3
        assert await admin.offset_at(queue, before_ms + 3_600_000, upper=True) == 2
        assert (await admin.topic_stats(topic))[queue].max_offset == 3


async def test_messages_are_found_by_offset_id_by_unique_id_and_by_key(
    name_server: str, topics: Callable[..., str], broker: ClientSocket
) -> None:
    topic = topics(queues=2)
    unique_id = "7F000001" + "0A1B2C3D" * 3
    first = send(broker, topic, b"one", 0, KEYS="red green", UNIQ_KEY=unique_id)
    send(broker, topic, b"two", 1, KEYS="green", UNIQ_KEY="7F000001" + "0A1B2C3E" * 3)
    async with Admin(name_server) as admin:

        async def green() -> list[bytes]:
            return [message.body for message in await admin.messages_by_key(topic, "green")]

        assert (await admin.view_message(topic, first["msgId"])).body == b"one"
        await becomes([b"one", b"two"], green)
        assert (await admin.view_message(topic, unique_id)).body == b"one"
        found = await admin.message_by_unique_id(topic, unique_id)
        assert (found.topic, found.keys, found.offset_message_id) == (topic, ("red", "green"), first["msgId"])
        assert found.broker_name == BROKER
        assert [message.body for message in await admin.messages_by_key(topic, "red")] == [b"one"]
        assert await admin.messages_by_key(topic, "blue") == []
        for wrong in ("nonsense", "7F000001" + "0A1B2C3F" * 3):
            with pytest.raises(ClientError) as refused:
                await admin.view_message(topic, wrong)
            assert refused.value.code == 208


async def test_a_group_is_made_seen_and_deleted(name_server: str) -> None:
    group = unique("group")
    async with Admin(name_server) as admin:
        await admin.create_group(GroupConfig(group=group, retries_max=3, broadcast_enabled=False))
        config = (await admin.groups())[group]
        assert (config.group, config.retries_max, config.broadcast_enabled) == (group, 3, False)
        await admin.delete_group(group)
        assert group not in await admin.groups()


async def test_progress_of_a_group_is_stored_reported_and_reset(
    name_server: str, topics: Callable[..., str], broker: ClientSocket
) -> None:
    topic, group = topics(queues=2), unique("group")
    queue = MessageQueue(topic, BROKER, 0)
    for number in range(5):
        send(broker, topic, b"%d" % number)
    async with Admin(name_server) as admin:
        await admin.create_group(group)
        await becomes(5, lambda: admin.max_offset(queue))
        assert await admin.offset(group, queue) is None
        await admin.update_offset(group, queue, 2)
        assert await admin.offset(group, queue) == 2
        assert await admin.groups_of(topic) == [group]
        lag = await admin.consumer_lag(group, topic)
        assert (lag.queues[queue].broker_offset, lag.queues[queue].consumer_offset) == (5, 2)
        assert lag.messages == 3
        assert (await admin.reset_offsets(group, topic, None))[queue] == 5


async def test_a_group_without_members(name_server: str) -> None:
    async with Admin(name_server) as admin:
        with pytest.raises(BrokerError) as refused:
            await admin.consumers(unique("group"))
        assert refused.value.code == 206
        with pytest.raises(BrokerError):
            await admin.producers(unique("group"))
        with pytest.raises(BrokerError):
            await admin.running_info(unique("group"), "nobody")


async def test_names_in_a_namespace_are_shown_without_it(name_server: str) -> None:
    topic, group, space = unique("t"), unique("g"), unique("ns")
    async with Admin(client=ClientOptions(name_server=name_server, namespace=space)) as inside:
        await inside.create_topic(topic, 1)
        await inside.create_group(group)
        assert topic in await inside.topics()
        assert group in await inside.groups()
        assert await inside.queues(topic) == [MessageQueue(topic, BROKER, 0)]
        assert list(await inside.topic_stats(topic)) == [MessageQueue(topic, BROKER, 0)]
        assert await inside.max_offset(MessageQueue(topic, BROKER, 0)) == 0
        await _send_three(name_server, f"{space}%{topic}")
        async with Admin(name_server) as outside:
            assert f"{space}%{topic}" in await outside.topics()
            assert f"{space}%{group}" in await outside.groups()
            other = await _make_others(name_server, outside, topic, group)
        assert (await inside.topics()).count(topic) == 1
        assert other not in {*await inside.topics(), *await inside.groups()}
        overview, extensions = Overview(inside), Extensions(inside)
        assert (await overview.topics())[topic].messages == 3, "not those of the topic without a namespace"
        for names in (
            await overview.topics(),
            await overview.topic_configs(),
            await extensions.topics(BROKER),
            await extensions.groups(BROKER),
        ):
            assert other not in names


async def _send_three(name_server: str, topic: str) -> None:
    async with Producer(unique("p"), name_server=name_server) as producer:
        await producer.send_batch([Message(topic, b"m")] * 3)


async def _make_others(name_server: str, admin: Admin, topic: str, group: str) -> str:
    """A topic and a group of the same names, and others, outside of the namespace."""
    other = unique("other")
    for name in (topic, other):
        await admin.create_topic(name, 1)
        await _send_three(name_server, name)
    for name in (group, other):
        await admin.create_group(name)
    return other


def test_an_offset_id_names_an_address_and_an_offset() -> None:
    assert decode_offset_id("7F00000100002A9F00000000000004D2") == ("127.0.0.1:10911", 1234)
    assert decode_offset_id("00" * 15 + "01" + "00002A9F" + "00" * 7 + "05") == ("[::1]:10911", 5)


@pytest.mark.parametrize(
    "text",
    ["", "7F000001", "zz" * 16, "7F000001" + "00000000" + "00" * 8, "7F000001" + "00002A9F" + "FF" * 8],
)
def test_an_invalid_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ClientError) as refused:
        decode_offset_id(text)
    assert refused.value.code == 208


def test_javas_forms_of_the_bodies_are_read() -> None:
    info = read(
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b"]}}',
        cluster_info,
    )
    assert (info.brokers, info.clusters) == ({"b": {0: "h:1", 1: "h:2"}}, {"c": ("b",)})
    lag = read(
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"t"}:{"brokerOffset":10,'
        b'"consumerOffset":8,"lastTimestamp":7,"pullOffset":9}}}',
        consumer_lag,
    )
    assert (lag.tps, lag.messages, lag.queues[QUEUE].pulled) == (1.5, 2, 9)
    stats = read(
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"t"}:{"lastUpdateTimestamp":0,'
        b'"maxOffset":10,"minOffset":2}},"topicPutTps":0.0}',
        topic_stats,
    )
    assert stats[QUEUE].min_offset == 2


def test_a_group_is_written_as_it_is_read() -> None:
    config = GroupConfig(group="g", orderly=True, retry_queues=2, timeout_minutes=3)
    assert read(config.encode(), group_config) == config


def test_an_answer_without_its_field_is_an_error_of_ours() -> None:
    answer = RemotingCommand.request(1).answer(ext={"offset": "x"})
    assert integer_of(RemotingCommand.request(1).answer(ext={"offset": "7"}), "offset", "b") == 7
    for field in ("offset", "timestamp"):
        with pytest.raises(ClientError, match=field):
            integer_of(answer, field, "b")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"consumeTps":"x"}',
        b'{"offsetTable":[]}',
        b'{"offsetTable":{{"topic":"t"}:{}}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:7}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:{"brokerOffset":1e30}}}',
    ],
)
def test_an_invalid_body_is_an_error_that_says_so(body: bytes) -> None:
    with pytest.raises(ClientError, match="cannot be read"):
        read(body, consumer_lag)
