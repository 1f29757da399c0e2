"""How an instance reaches brokers: signatures, TLS, namespaces, headers, name servers, connections that come and go."""

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Callable

import orjson
import pytest
import trustme

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import (
    ClientError,
    ConfigError,
    ConnectFailed,
    NoNameServer,
    TooManyRequests,
)
from firearrow.client.base.message import Message
from firearrow.client.base.names import Namespace, check_group, check_topic
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, Credentials, PushConsumerOptions
from firearrow.client.base.reports import Event
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.remoting.channel import sign
from firearrow.client.remoting.client_id import build_client_id
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import PublishInfo, RouteTable, TopicRoute
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.client.scripted import Scripted
from tests.golden import session
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

RECORDED = Credentials("rocketmq2", "12345678")


def test_signatures_are_those_of_apaches_client() -> None:
    seen = 0
    for recorded in session("acl"):
        line = recorded.line
        if line["kind"] != "request" or "Signature" not in (line.get("extFields") or {}):
            continue
        raw = recorded.raw
        assert raw is not None
        request = RemotingCommand.decode(raw)
        wanted = request.ext.pop("Signature")
        request.ext.pop("AccessKey")
        sign(request, RECORDED)
        assert request.ext["Signature"] == wanted
        sign(request, RECORDED)
        assert request.ext["Signature"] == wanted, "a second try has the same signature"
        seen += 1
    assert seen == 7


def test_a_token_is_signed_and_secrets_are_not_shown() -> None:
    plain, token = RemotingCommand.request(105, {"topic": "t"}), RemotingCommand.request(105, {"topic": "t"})
    credentials = Credentials("key", "hush", security_token="also-hush")
    sign(plain, Credentials("key", "hush"))
    sign(token, credentials)
    assert token.ext["SecurityToken"] == "also-hush"
    assert plain.ext["Signature"] != token.ext["Signature"]
    assert "hush" not in repr(credentials)


@pytest.mark.parametrize("binary", [False, True])
async def test_everything_works_signed_namespaced_and_in_either_header(
    name_server: str, topics: Callable[..., str], binary: bool
) -> None:
    topic, got = topics(), []
    client = ClientOptions(
        name_server=name_server,
        credentials=Credentials("key", "secret"),
        namespace_v2="space",
        unit_name="unit",
        heartbeat_v2=True,
        binary_headers=binary,
    )
    consumer = PushConsumer(
        unique("group"), client=client, options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )
    consumer.subscribe(topic, lambda messages: got.extend(m.body for m in messages))
    async with Producer(unique("producer"), client=client) as producer, consumer:
        assert consumer.client_id == producer.instance.client_id
        assert consumer.client_id is not None
        assert consumer.client_id.endswith("@unit")
        for number in range(5):
            await producer.send(Message(topic, b"%d" % number))
        await producer.send_batch([Message(topic, b"5"), Message(topic, b"6")])
        await producer.send_oneway(Message(topic, b"7"))
        await eventually_async(lambda: len(got) == 8)
    assert sorted(got) == [b"%d" % number for number in range(8)]


async def test_tls(peer: Peer, topics: Callable[..., str]) -> None:
    """Through a proxy that terminates TLS. A certificate of an unknown issuer is refused."""
    authority, topic, got = trustme.CA(), topics(), []
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    async with Detour(peer, tls=theirs) as detour:
        client = ClientOptions(name_server=detour.name_server, tls=ours)
        consumer = PushConsumer(
            unique("group"),
            client=client,
            options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
        )
        consumer.subscribe(topic, lambda messages: got.extend(m.body for m in messages))
        async with Producer(unique("producer"), client=client) as producer, consumer:
            await producer.send(Message(topic, b"sealed " * 100_000))
            await eventually_async(lambda: got == [b"sealed " * 100_000])
        instance = await ClientInstance.of(ClientOptions(name_server=detour.name_server, tls=True))
        with pytest.raises(ConnectFailed, match="certificate"):
            await instance.routes.refresh(topic)
        await instance.leave()


async def test_name_servers_are_asked_for_by_http(name_server: str, topics: Callable[..., str]) -> None:
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{name_server}\n".encode())

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        instance = await ClientInstance.of(ClientOptions(name_server="", name_server_url=url, unit_name="u"))
        await eventually_async(lambda: instance.name_servers.addresses == (name_server,))
        assert await instance.routes.refresh(topics())
        await instance.leave()
        assert asked == ["/rocketmq/nsaddr-u?nofix=1"]
        unreachable = await ClientInstance.of(
            ClientOptions(name_server="", name_server_url="file:///etc/passwd")
        )
        with pytest.raises(NoNameServer):
            await unreachable.routes.refresh("t")
        await unreachable.leave()
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def test_client_ids() -> None:
    fixed = ClientOptions(client_ip="192.0.2.7", instance_name="i", unit_name="u")
    assert build_client_id(fixed) == "192.0.2.7@i@u"
    assert build_client_id(fixed, stream=True) == "192.0.2.7@i@u@STREAM"
    free = ClientOptions(client_ip="192.0.2.7")
    assert build_client_id(free, broadcasting=True) == "192.0.2.7@DEFAULT"
    assert build_client_id(free) == build_client_id(free)
    assert len({build_client_id(ClientOptions()) for _ in range(1000)}) == 1000


def test_names() -> None:
    for good in ("a", "%RETRY%g", "a|b-c_d", "x" * 127):
        assert check_topic(good) == good
    for bad in ("", " ", "a b", "é", "x" * 128, "a/b", "a.b"):
        with pytest.raises(ConfigError):
            check_topic(bad)
    assert check_group("g" * 120)
    with pytest.raises(ConfigError):
        check_group("g" * 121)
    space = Namespace("ns")
    for plain, wrapped in (
        ("t", "ns%t"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
    ):
        assert space.wrap(plain) == space.wrap(space.wrap(plain)) == wrapped
        assert space.unwrap(wrapped) == plain
    assert Namespace(None).wrap("t") == Namespace("").unwrap("t") == "t"


def test_options_are_checked_where_they_are_made() -> None:
    for wrong in ({"heartbeat_s": 0}, {"pending_max": 0}, {"idle_s": 1e9}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ClientOptions(**wrong)  # type: ignore[arg-type]


def route(**more: object) -> bytes:
    whole = {
        "brokerDatas": [
            {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": "h:1", "1": "h:2"}},
            {"brokerName": "a", "cluster": "c", "brokerAddrs": {"1": "h:3"}},
        ],
        "queueDatas": [
            {"brokerName": "b", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "topicSysFlag": 0},
            {"brokerName": "a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0},
        ],
    } | more
    return json.dumps(whole).encode()


def test_what_a_route_comes_to() -> None:
    decoded = TopicRoute.decode(route())
    assert [data.broker_name for data in decoded.queues] == ["a", "b"]
    publish = PublishInfo.of("t", decoded)
    assert [(q.broker_name, q.queue_id) for q in publish.queues] == [("b", 0), ("b", 1), ("b", 2)], (
        "a has no master"
    )
    assert [q.queue_id for q in PublishInfo.of("t", decoded, 8).queues] == [0, 1]
    ordered = PublishInfo.of("t", TopicRoute.decode(route(orderTopicConf="b:1;a:2;broken;:3")))
    assert [(q.broker_name, q.queue_id) for q in ordered.queues] == [("b", 0), ("a", 0), ("a", 1)]


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"null", route(queueDatas=5), route(brokerDatas=[{}]), b"\xff", route()[:-5],
     route(queueDatas=[{"brokerName": "b", "readQueueNums": 10**9, "writeQueueNums": 1, "perm": 6}])],
)  # fmt: skip
def test_a_broken_route_is_an_error(body: bytes) -> None:
    with pytest.raises(ClientError):
        TopicRoute.decode(body)


async def test_addresses_of_brokers() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server))
        routes: RouteTable = instance.routes
        await routes.refresh("t")
        routes._brokers["s"] = {1: "h:1", 2: "h:2"}
        routes._brokers["t"] = {0: "h:3", 2: "h:4"}
        assert routes.address("s", 0) == ("h:1", 1)
        assert routes.address("s", 0, only_this=True) is None
        assert routes.address("t", 1) == ("h:4", 2), "the next id"
        assert routes.address("t", 3) == ("h:3", 0), "any"
        assert routes.address("x", 0) is None
        assert routes.master("s") is None
        assert (await routes.refresh("t"), len(cluster.asked)) == (False, 2)
        await instance.leave()


async def test_a_route_that_is_gone_stays_as_it_was() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server))
        await instance.routes.refresh("t")
        cluster.known = False
        with pytest.raises(ClientError):
            await instance.routes.refresh("t")
        assert len((await instance.routes.publish_info("t")).queues) == 2
        await instance.leave()


async def test_concurrent_route_requests_are_sent_once() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server))
        await asyncio.gather(*(instance.routes.publish_info("t") for _ in range(100)))
        assert cluster.asked == ["t"]
        await instance.leave()


async def test_idle_connections_are_closed_and_opened_again() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server, idle_s=0.2))
        events: list[Event] = []
        instance.connections.listeners.append(events.append)
        await instance.routes.refresh("t")
        held = instance.channels.held(cluster.name_server)
        assert held is not None
        await eventually_async(lambda: held.closed, 5)
        await instance.routes.refresh("t")
        assert (events, instance.connections.down) == ([], {}), "nothing was lost"
        await instance.leave()


async def test_requests_on_the_way_are_bounded() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server, pending_max=3))
        await instance.routes.refresh("t")
        cluster.brokers["a"].script = [None] * 9
        address = cluster.brokers["a"].address
        request = {"e": "0"}
        await instance.call(address, RemotingCommand.request(RequestCode.HEART_BEAT), 1)
        calls = [
            asyncio.create_task(
                instance.call(address, RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, request), 0.3)
            )
            for _ in range(5)
        ]
        ends = [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)]
        assert ends.count(TooManyRequests) == 2
        await instance.leave()


class Member:
    """A consumer as its instance knows it."""

    group = "g"
    wanted = 1

    def topics(self) -> set[str]:
        return {"t"}

    def heartbeat_data(self) -> dict[str, object]:
        subscriptions = [{"topic": "t", "subVersion": 17, "subString": "*"}] * self.wanted
        return {"groupName": self.group, "subscriptionDataSet": subscriptions}

    @property
    def rebalances(self) -> bool:
        return True

    async def rebalance(self) -> bool:
        return True

    async def persist_offsets(self) -> None:
        pass


async def test_heartbeats_of_the_second_kind_say_less_when_nothing_changed() -> None:
    async with Scripted("a") as cluster:
        beats: list[dict[str, object]] = []
        changed = False

        def answer(request: RemotingCommand) -> RemotingCommand:
            if request.code == RequestCode.HEART_BEAT:
                beats.append(orjson.loads(request.body))
            return request.answer(
                ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(changed).lower()}
            )

        cluster.brokers["a"].answer = answer  # type: ignore[method-assign,assignment]
        options = ClientOptions(name_server=cluster.name_server, heartbeat_v2=True, heartbeat_s=3600)
        instance, member = await ClientInstance.of(options), Member()
        await instance.routes.refresh("t")
        await instance.join_consumer(member)
        for _ in range(3):
            assert await instance.heartbeat_all() == 1
        assert [beat["withoutSub"] for beat in beats] == [False, True, True]
        assert len({beat["heartbeatFingerprint"] for beat in beats}) == 1
        assert beats[1]["consumerDataSet"] == [{"groupName": "g", "subscriptionDataSet": []}]
        Member.wanted = 2
        await instance.heartbeat_all()
        assert beats[-1]["withoutSub"] is False
        assert beats[-1]["heartbeatFingerprint"] != beats[0]["heartbeatFingerprint"]
        changed = True
        await instance.heartbeat_all()
        assert [beat["withoutSub"] for beat in beats[-2:]] == [True, False], "the broker lost it: all again"
        await instance.leave_consumer(member)
        await instance.leave()
