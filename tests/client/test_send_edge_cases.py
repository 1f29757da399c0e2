"""Edge cases of sends: what was stored, what is bounded, what ends when a producer closes, names in a namespace."""

import asyncio
import os
from collections.abc import Callable

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import (
    ClientError,
    NoNameServer,
    NoRoute,
    NotRunning,
    RequestTimeout,
    TooManyRequests,
)
from firearrow.client.base.hooks import SendContext
from firearrow.client.base.message import Message, MessageQueue, SendStatus
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.batch import split
from firearrow.client.send.fault_strategy import latency_faults
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.client.scripted import Answer, Scripted, ScriptedBroker
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async
from tests.support.messages import read_messages

Topics = Callable[..., str]


def producer(cluster: Scripted, **options: object) -> Producer:
    return Producer("g", name_server=cluster.name_server, options=ProducerOptions(**options))  # type: ignore[arg-type]


# ---- with a scripted broker ----


@pytest.mark.parametrize("then", [1, 13, 11])
async def test_stored_once_is_never_an_error_after_failed_retries(then: int) -> None:
    async with (
        Scripted("a") as cluster,
        producer(cluster, retries=1, retry_when_not_stored_ok=True) as sender,
    ):
        cluster.brokers["a"].script = [10, then]
        result = await sender.send(Message("t", b"x"))
        assert len(cluster.brokers["a"].sent) == 2
        assert result.status is (
            SendStatus.SLAVE_NOT_AVAILABLE if then == 11 else SendStatus.FLUSH_DISK_TIMEOUT
        )


async def test_submit_takes_what_is_stored_less_safely_as_it_is() -> None:
    async with Scripted("a") as cluster, producer(cluster, retry_when_not_stored_ok=True) as sender:
        cluster.brokers["a"].script = [12, 12]
        for _ in range(2):
            assert (await sender.submit(Message("t", b"x"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(cluster.brokers["a"].sent) == 2


async def test_what_is_submitted_again_names_its_new_queue() -> None:
    """Java sends the old bytes again, which name the queue of the broker that failed."""
    async with Scripted("a", "b") as cluster, producer(cluster, attempt_timeout_s=0.1) as sender:
        for broker in cluster.brokers.values():
            broker.script = [None]
        results = await asyncio.gather(*(sender.submit(Message("t", b"x")) for _ in range(4)))
        assert all(result.status is SendStatus.SEND_OK for result in results)
        for broker in cluster.brokers.values():
            assert {request.ext["n"] for request in broker.sent} == {broker.name}
        assert sum(len(broker.sent) for broker in cluster.brokers.values()) == 6


class Garbled(ScriptedBroker):
    """Answers to sends cannot be read."""

    def answer(self, request: RemotingCommand) -> Answer:
        answer = super().answer(request)
        if answer is not None and "queueOffset" in answer.ext:
            answer.ext["queueOffset"] = "over there"
        return answer


async def test_an_answer_that_cannot_be_read_is_an_error_of_the_client() -> None:
    cluster = Scripted("a")
    cluster.brokers["a"] = Garbled("a")
    async with cluster, producer(cluster, retries=0) as sender:
        for _ in range(2):  # the second takes the fast path
            with pytest.raises(ClientError, match="queueOffset"):
                await sender.send(Message("t", b"x"))
            with pytest.raises(ClientError, match="queueOffset"):
                await sender.submit(Message("t", b"x"))


async def test_automatic_batches_wait_for_capacity_like_others() -> None:
    async with Scripted("a") as cluster, producer(cluster, auto_batch=True, in_flight_max=10) as sender:
        results = await asyncio.gather(*(sender.send(Message("t", b"%d" % n)) for n in range(100)))
        assert len(results) == 100
        sent = cluster.brokers["a"].sent
        assert {request.code for request in sent} == {RequestCode.SEND_BATCH_MESSAGE}
        assert len(sent) >= 10, "no more than 10 messages at a time"
        environment = [sender.submit(Message("t", b"x")) for _ in range(10)]
        with pytest.raises(TooManyRequests):
            sender.submit(Message("t", b"x"))
        await asyncio.gather(*environment)


async def test_one_that_may_not_be_sent_does_not_harm_its_batch_nor_keep_capacity() -> None:
    async with Scripted("a") as cluster, producer(cluster, auto_batch=True, in_flight_max=10) as sender:
        for _ in range(5):
            bad = Message("t", b"x", properties={"k": "a\x01b"})
            worse = Message("t", b"x", tags=7)  # type: ignore[arg-type]
            sends = (sender.send(message) for message in (Message("t", b"x"), bad, worse, Message("t", b"y")))
            ended = await asyncio.gather(*sends, return_exceptions=True)
            assert [getattr(end, "code", 0) for end in ended] == [0, 13, 13, 0]


class Silent(Scripted):
    """A name server that returns no routes."""

    def _route(self, request: RemotingCommand) -> Answer:
        return None if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else super()._route(request)


async def test_what_cannot_be_sent_before_the_producer_closes_is_reported() -> None:
    async with Silent("a") as cluster:
        sender = producer(cluster, send_timeout_s=0.05, drain_s=0.05)
        await sender.start()
        way = sender.submit(Message("t", b"x"), timeout_s=60)
        async with asyncio.timeout(5):
            await sender.close()
            with pytest.raises(NotRunning):
                await way


async def test_a_broker_that_is_silent_is_left_alone_until_the_detector_finds_it_back() -> None:
    async with (
        Scripted("a", "b") as cluster,
        producer(cluster, latency_faults=True, fault_detector=True, detect_interval_s=0.001) as sender,
    ):
        await sender.send(Message("t", b"warm"))
        faults = latency_faults(sender.instance, sender.options)
        faults.update("a", 0, isolate=True, reachable=False)
        faults.update("gone", 0, isolate=True, reachable=False)
        await asyncio.sleep(0.01)
        cluster.brokers["a"].silent = True
        await faults.detect()
        assert not faults.reachable("a")
        assert faults.reachable("gone"), "forgotten: no route names it"
        cluster.brokers["a"].silent = False
        await asyncio.sleep(0.01)
        await faults.detect()
        assert faults.reachable("a")
        assert not faults.available("a"), "that takes its time"


async def test_with_latency_faults_tries_go_to_brokers_that_answer() -> None:
    async with Scripted("a", "b", "c") as cluster, producer(cluster, latency_faults=True) as sender:
        cluster.brokers["a"].script = [2] * 100
        cluster.brokers["b"].script = [14] * 100
        for _ in range(30):
            assert (await sender.send(Message("t", b"x"))).queue.broker_name == "c"
        assert len(cluster.brokers["a"].sent) <= 2
        assert len(cluster.brokers["b"].sent) <= 2


class Remembers:
    def __init__(self) -> None:
        self.contexts: list[SendContext] = []

    def before(self, context: SendContext, /) -> None: ...

    def after(self, context: SendContext, /) -> None:
        self.contexts.append(context)


async def test_hooks_hear_of_the_end_of_every_kind_of_send() -> None:
    hook = Remembers()
    async with Scripted("a") as cluster:
        async with Producer("g", name_server=cluster.name_server, send_hooks=[hook]) as sender:
            await sender.send(Message("t", b"123"))
            await sender.submit(Message("t", b"x", delay_level=1))
            await sender.send_oneway(Message("t", b"x"))
            batch = [Message("t", b"x"), Message("t", b"y")]
            await sender.send_batch(batch)
        modes = [(c.mode, c.kind, c.result is not None, c.error) for c in hook.contexts]
        assert modes == [
            ("sync", "normal", True, None),
            ("async", "delay", True, None),
            ("oneway", "normal", False, None),
            ("sync", "normal", True, None),
        ]
        first, last = hook.contexts[0], hook.contexts[-1]
        assert (first.group, first.body_bytes, first.broker_address) == ("g", 3, cluster.brokers["a"].address)
        assert list(last.messages) == batch


class Stamp:
    """An RpcHook."""

    def __init__(self) -> None:
        self.answers: list[int] = []

    def before(self, address: str, request: RemotingCommand, /) -> None:
        request.ext["stamp"] = address

    def after(self, address: str, request: RemotingCommand, answer: RemotingCommand, /) -> None:
        self.answers.append(answer.code)


async def test_rpc_hooks_add_to_every_request_while_their_producer_runs() -> None:
    async with Scripted("a") as cluster:
        hook, shared = Stamp(), ClientOptions(name_server=cluster.name_server)
        async with Producer("other", client=shared) as stays:
            async with Producer("g", client=shared, rpc_hooks=[hook]) as sender:
                await sender.send(Message("t", b"x"))
                await sender.submit(Message("t", b"x"))
                await sender.send_oneway(Message("t", b"x"))
                await eventually_async(lambda: len(cluster.brokers["a"].sent) == 3, 5)
            await stays.send(Message("t", b"x"))
        *stamped, last = cluster.brokers["a"].sent
        assert [request.ext["stamp"] for request in stamped] == [cluster.brokers["a"].address] * 3
        assert "stamp" not in last.ext
        assert hook.answers.count(0) >= 2


class Forbids:
    """An RpcHook that blocks requests of one code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def before(self, address: str, request: RemotingCommand, /) -> None:
        if request.code == self.code:
            raise PermissionError(f"no {request.code}")

    def after(self, address: str, request: RemotingCommand, answer: RemotingCommand, /) -> None: ...


@pytest.mark.parametrize("code", [RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2])
async def test_what_an_rpc_hook_raises_reaches_the_sender(code: RequestCode) -> None:
    async with Scripted("a") as cluster:
        remembers = Remembers()
        sender = Producer(
            "g", name_server=cluster.name_server, rpc_hooks=[Forbids(code)], send_hooks=[remembers]
        )
        async with sender, asyncio.timeout(5):
            for way in (sender.send, sender.submit, sender.send_oneway):
                with pytest.raises(PermissionError):
                    await way(Message("t", b"x"))
        assert not cluster.brokers["a"].sent
        for context in remembers.contexts:
            assert isinstance(context.error, PermissionError)


async def test_a_close_before_the_first_step_is_reported() -> None:
    async with Scripted("a") as cluster:
        sender = producer(cluster, send_timeout_s=0.001)
        await sender.start()
        way = sender.submit(Message("t", b"x"), timeout_s=60)
        await sender.instance.leave()
        async with asyncio.timeout(5):
            with pytest.raises(NotRunning):
                await way


async def test_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Producer("g") as sender:
        for way in (sender.send, sender.submit, sender.send_oneway):
            with pytest.raises(NoNameServer) as refused:
                await way(Message("t", b"x"))
            assert refused.value.code == 10004


# ---- with a broker ----


async def stored(peer: Peer, topic: str, count: int) -> list[Record]:
    """The records of queue 0, once there are `count`; Apache's broker shows them a moment late, and in any order."""
    with ClientSocket(address(peer.address)) as connection:
        await eventually_async(lambda: len(read_messages(connection, topic)) >= count, 20)
        return read_messages(connection, topic)


async def test_a_topic_that_nothing_makes_has_no_route(name_server: str) -> None:
    options = ProducerOptions(template_topic=unique("none"))
    async with Producer(unique("producer"), name_server=name_server, options=options) as sender:
        topic = unique("unmade")
        for way in (sender.send, sender.submit, sender.send_oneway):
            with pytest.raises(NoRoute, match=topic) as refused:
                await way(Message(topic, b"x"))
            assert refused.value.code == 10005


async def test_one_way_messages_all_arrive_and_no_more_than_may_be_are_on_the_way(
    peer: Peer, topics: Topics
) -> None:
    topic = topics(queues=1)
    options = ProducerOptions(in_flight_max=10)
    async with Producer(unique("producer"), name_server=peer.name_server, options=options) as sender:
        await sender.send(Message(topic, b"0"))
        for number in range(1, 200):
            await sender.send_oneway(Message(topic, b"%d" % number))
        await sender.send(Message(topic, b"200"))
    found = await stored(peer, topic, 201)
    assert sorted(int(record.body) for record in found) == list(range(201))


async def send_oneway(sender: Producer, messages: list[Message]) -> None:
    for message in messages:
        await sender.send_oneway(message)


async def test_a_broker_that_does_not_read_stops_one_way_messages(peer: Peer, topics: Topics) -> None:
    topic, body = topics(queues=1), os.urandom(1 << 20)
    async with Detour(peer) as detour:
        options = ProducerOptions(
            send_timeout_s=0.3, retries=0, in_flight_bytes=4 << 20, compress_over_bytes=1 << 30
        )
        client = ClientOptions(name_server=detour.name_server, heartbeat_s=3600)
        async with Producer(unique("producer"), options=options, client=client) as sender:
            await sender.send(Message(topic, b"before"), timeout_s=3)
            detour.broker.flowing.clear()
            with pytest.raises((RequestTimeout, TooManyRequests)):
                await send_oneway(sender, [Message(topic, body) for _ in range(64)])
            detour.broker.flowing.set()
            await sender.send(Message(topic, b"after"), timeout_s=30)
    bodies = [record.body for record in await stored(peer, topic, 3)]
    assert {b"before", b"after", body} == set(bodies)
    assert len(bodies) < 66


async def test_names_within_a_namespace(peer: Peer) -> None:
    space, topic = unique("ns"), unique("t")
    client = ClientOptions(name_server=peer.name_server, namespace=space)
    async with (
        Admin(client=client) as admin,
        Producer(unique("producer"), client=client) as sender,
    ):
        await admin.create_topic(topic, 1)
        results = [await sender.send(Message(topic, b"1"))]
        queue = MessageQueue(topic, results[0].queue.broker_name, 0)
        results.append(await sender.submit(Message(topic, b"2")))
        results.append(await sender.submit(Message(topic, b"3"), queue=queue))
        results.append(await sender.send(Message(topic, b"4"), selector=lambda queues, message: queues[0]))
        results.append(await sender.send_batch([Message(topic, b"5"), Message(topic, b"6")], queue=queue))
        await sender.send_oneway(Message(topic, b"7"))
        results.append(await sender.send(Message(topic, b"8", sharding_key="k")))
        assert {result.queue for result in results} == {queue}
        assert sender.group.startswith(f"{space}%")
    found = await stored(peer, f"{space}%{topic}", 8)
    assert sorted(record.body for record in found) == [b"%d" % number for number in range(1, 9)]
    single = [record for record in found if record.body not in (b"5", b"6")]
    assert {record.properties["INSTANCE_ID"] for record in single} == {space}


async def test_the_priority_chooses_the_queue(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=4)
    async with Producer(unique("producer"), name_server=peer.name_server) as sender:
        for priority, queue_id in ((0, 0), (2, 2), (3, 3), (9, 3)):
            for way in (sender.send, sender.submit):
                assert (await way(Message(topic, b"x", priority=priority))).queue.queue_id == queue_id


async def test_a_long_list_leaves_in_as_many_batches_as_it_takes(peer: Peer, topics: Topics) -> None:
    topic = topics(queues=1)
    messages = [Message(topic, b"%05d" % number * 20, tags="t", keys=["k"]) for number in range(3000)]
    options = ProducerOptions(message_bytes_max=1 << 16)
    async with Producer(unique("producer"), name_server=peer.name_server, options=options) as sender:
        batches = list(split(messages, 1 << 16))
        results = [await sender.send_batch(batch) for batch in batches]
    assert 5 < len(batches) < 15
    ids = [message_id for result in results for message_id in result.message_id.split(",")]
    found = await stored(peer, topic, 3000)
    assert [record.body for record in found] == [message.body for message in messages]
    assert [record.properties["UNIQ_KEY"] for record in found] == ids
