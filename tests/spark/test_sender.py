"""Bulk sends: what arrives is what was sent, in its order, and nothing that was acknowledged is missing."""

import os
import struct
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from firearrow._native.columnar.batch_encoder import PropertyEdits, batch_body
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import blocking
from firearrow.client.base.message import MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import SendFailed, TopicNotFound
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import PendingSend, Sender
from tests.client.proxy import Detour
from tests.client.scripted import Scripted
from tests.interop.peers import Peer
from tests.spark.background_loop import BackgroundLoop
from tests.spark.record_bytes import properties_bytes, record_bytes, spans_of

_numbers = count(1)


@pytest.fixture
def target(peer: Peer) -> Cluster:
    return Cluster(name_server=peer.name_server)


@pytest.fixture
def topic(peer: Peer) -> str:
    name = f"sent-{os.getpid()}-{next(_numbers)}"
    with blocking.Admin(name_server=peer.name_server) as admin:
        admin.create_topic(name, 4)
    return name


@pytest.fixture
def background_loop() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as running:
        yield running


def item(number: int, properties: bytes = b"") -> bytes:
    body = b"%08d" % number
    return (
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + (struct.pack(">h", len(properties)) + properties)
    )


def stored(peer: Peer, queue: MessageQueue) -> list[ReceivedMessage]:
    """All of a queue, as the client reads it."""
    found: list[ReceivedMessage] = []
    with blocking.PullConsumer("reads-back", name_server=peer.name_server) as consumer:
        end = consumer.last_offset(queue)
        consumer.assign([queue])
        consumer.seek_to_begin(queue)
        while len(found) < end:
            found += consumer.poll(timeout_s=10)
    return found


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def test_records_arrive_as_they_were(peer: Peer, target: Cluster, topic: str) -> None:
    properties = {"UNIQ_KEY": "AB" * 16, "TAGS": "t", "KEYS": "k1 k2", "größe": "übel", "MSG_REGION": "old"}
    spans = spans_of(
        *(
            record_bytes(b"body %d" % n, properties_bytes(properties), queue_offset=n, flag=n)
            for n in range(300)
        )
    )
    with Sender(target) as sender:
        queue = sender.queues(topic)[1]
        at, pendings = 0, []
        while at < len(spans):
            batch = batch_body(spans, at, PropertyEdits(provenance=("job", "there")), bytes_max=9000)
            pendings.append(sender.send_batch(queue, batch.body, batch.count, born_ms=batch.born_ms))
            at = batch.next
        assert [offset for pending in pendings for offset in pending.wait()] == list(range(300))
    assert len(pendings) > 3
    found = stored(peer, queue)
    assert [message.body for message in found] == [b"body %d" % n for n in range(300)]
    assert [message.flag for message in found] == list(range(300))
    last = found[-1]
    assert (last.tags, list(last.keys), last.born_timestamp) == ("t", ["k1", "k2"], 1_700_000_000_000)
    assert last.properties["größe"] == "übel"
    assert last.properties["REPLAY_OFFSET"] == "299"
    assert last.properties["UNIQ_KEY"] == "AB" * 16
    assert last.properties.get("MSG_REGION") != "old"


def test_every_queue_keeps_its_order_while_others_are_on_the_way(
    peer: Peer, target: Cluster, topic: str
) -> None:
    with Sender(target) as sender:
        queues = sender.queues(topic)
        for number in range(200):
            sender.send_batch(queues[number % 4], item(number) + item(number + 1000), 2)
        sender.finish()
    for index, queue in enumerate(queues):
        sent = [n for number in range(index, 200, 4) for n in (number, number + 1000)]
        assert numbers(stored(peer, queue)) == sent


def test_one_message_brings_its_life(peer: Peer, target: Cluster, topic: str) -> None:
    with Sender(target) as sender:
        queue = sender.queues(topic)[0]
        properties = properties_bytes({"TAGS": "x", "own": "1"})
        first = sender.send_one(queue, 7, b"00000001", properties, reconsume_times=3, born_ms=99)
        empty = sender.send_one(queue, 0, b"", b"UNIQ_KEY\x01me\x02")
        assert (first.wait(), empty.wait()) == (range(0, 1), range(1, 2))
    one, other = stored(peer, queue)
    assert (one.flag, one.tags, one.reconsume_times, one.born_timestamp) == (7, "x", 3, 99)
    assert one.properties["own"] == "1"
    assert (other.body, other.properties["UNIQ_KEY"]) == (b"", "me")


def test_a_missing_topic_is_named_and_never_made(peer: Peer, target: Cluster) -> None:
    """Although this broker would create topics automatically."""
    name = f"missing-{os.getpid()}"
    with Sender(target, timeout_s=5) as sender:
        with pytest.raises(TopicNotFound, match=f"topic {name}: .* create the topic there first"):
            sender.queues(name)
        with pytest.raises(SendFailed, match=f"{name}@broker-a:0"):
            sender.send_batch(MessageQueue(name, "broker-a", 0), item(1), 1)
    with blocking.Admin(name_server=peer.name_server) as admin:
        assert name not in admin.topics()


def test_an_unknown_broker_is_an_error(target: Cluster, topic: str) -> None:
    sender = Sender(target, timeout_s=0.3)
    with pytest.raises(SendFailed, match="nowhere"), sender:
        sender.send_batch(MessageQueue(topic, "nowhere", 0), item(1), 1)


def test_what_is_refused_fails_with_the_broker_s_words_and_nothing_follows(
    peer: Peer, target: Cluster, topic: str
) -> None:
    sender = Sender(target)

    def sends() -> None:
        with sender:
            queue, other = sender.queues(topic)[2:]
            good = sender.send_batch(queue, item(1), 1)
            bad = sender.send_batch(queue, b"no items at all, not even one", 1)
            following = sender.send_batch(queue, item(2), 1)
            assert sender.send_batch(other, item(3), 1).wait() == range(1), "other queues go on"
            assert good.wait() == range(1)
            with pytest.raises(SendFailed, match=f"{topic}@broker-a:2: broker-a: "):
                bad.wait()
            with pytest.raises(SendFailed, match="not sent, because an earlier request failed"):
                following.wait()

    with pytest.raises(SendFailed, match=f"^{topic}@broker-a:2: broker-a: "):
        sends()
    assert numbers(stored(peer, MessageQueue(topic, "broker-a", 2))) == [1]


def test_an_error_of_the_caller_is_not_hidden_by_waiting(background_loop: BackgroundLoop) -> None:
    cluster = background_loop.enter(Scripted("a"))
    cluster.brokers["a"].silent = True
    pendings: list[PendingSend] = []

    def sends() -> None:
        with Sender(Cluster(name_server=cluster.name_server)) as sender:
            pendings.append(sender.send_batch(MessageQueue("t", "a", 0), item(1), 1))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sends()
    with pytest.raises(SendFailed, match="closed before the answer came"):
        pendings[0].wait()


# ---- faults of the network ----


def test_a_busy_broker_is_asked_again(background_loop: BackgroundLoop) -> None:
    cluster = background_loop.enter(Scripted("a"))
    broker = cluster.brokers["a"]
    broker.script = [2, 14, 0, 215]
    with Sender(Cluster(name_server=cluster.name_server)) as sender:
        queue = MessageQueue("t", "a", 1)
        for number in range(3):
            sender.send_batch(queue, item(number), 1)
    assert [request.body for request in broker.sent] == [item(n) for n in (0, 0, 0, 1, 1, 2)]
    assert {request.ext["c"] for request in broker.sent} == {"t"}, "no template: topics are not made"


def test_a_broker_that_sends_us_away_is_met_again_on_another_connection(
    background_loop: BackgroundLoop,
) -> None:
    cluster = background_loop.enter(Scripted("a"))
    broker = cluster.brokers["a"]
    broker.script = [0, 1500]
    with Sender(Cluster(name_server=cluster.name_server)) as sender:
        queues = [MessageQueue("t", "a", n) for n in (0, 1)]
        for number in range(4):
            sender.send_batch(queues[number % 2], item(number), 1)
    bodies = [request.body for request in broker.sent]
    assert set(bodies) == {item(n) for n in range(4)}
    assert bodies.count(item(0)) <= bodies.count(item(1)) == 2


def test_a_broker_that_stays_busy_is_an_error_in_time(background_loop: BackgroundLoop) -> None:
    cluster = background_loop.enter(Scripted("a"))
    cluster.brokers["a"].script = [2] * 1000
    with Sender(Cluster(name_server=cluster.name_server), timeout_s=0.3) as sender:
        pending = sender.send_batch(MessageQueue("t", "a", 0), item(1), 1)
        with pytest.raises(SendFailed, match="t@a:0: a: 2 SYSTEM_BUSY: as scripted"):
            pending.wait()
        sender._failure = None


def test_without_an_answer_the_same_request_leaves_again(background_loop: BackgroundLoop) -> None:
    """A silent broker, then the same after another connection."""
    cluster = background_loop.enter(Scripted("a"))
    broker = cluster.brokers["a"]
    broker.script = [None]
    with Sender(Cluster(name_server=cluster.name_server), timeout_s=3) as sender:
        pending = sender.send_batch(MessageQueue("t", "a", 0), item(5), 1)
        next(iter(sender._deliveries.values()))._silent_s = 0.2
        assert pending.wait() == range(1, 2)
    assert [request.body for request in broker.sent] == [item(5)] * 2


def test_connections_that_break_lose_nothing_and_change_no_order(
    peer: Peer, topic: str, background_loop: BackgroundLoop
) -> None:
    """Cuts in the middle of answers and of requests: messages may come twice, never out of order, never not."""
    detour = background_loop.enter(Detour(peer))
    with Sender(Cluster(name_server=detour.name_server)) as sender:
        queues = sender.queues(topic)
        for number in range(120):
            if number % 30 == 7:
                background_loop.call(lambda: setattr(detour.broker, "answer_bytes", 333))
            if number % 30 == 22:
                background_loop.call(lambda: setattr(detour.broker, "reset_requests", 1))
            sender.send_batch(queues[number % 2], item(number), 1)
    assert detour.broker.accepted > 4
    for index in (0, 1):
        found = numbers(stored(peer, queues[index]))
        assert list(dict.fromkeys(found)) == list(range(index, 120, 2)), "first of each, in order"


def test_a_large_batch_in_small_chunks_with_a_small_buffer(
    peer: Peer, topic: str, background_loop: BackgroundLoop
) -> None:
    """Half a megabyte a batch, more in flight than the buffers take, over a connection that takes little at a time."""
    detour = background_loop.enter(Detour(peer))
    detour.broker.chunk_bytes = 10_000
    spans = spans_of(*(record_bytes(b"%08d" % n + bytes(9000)) for n in range(200)))
    with Sender(Cluster(name_server=detour.name_server), on_the_way_bytes=600_000) as sender:
        queues = sender.queues(topic)
        at = 0
        while at < len(spans):
            batch = batch_body(spans, at, PropertyEdits(), bytes_max=500_000)
            sender.send_batch(queues[at % 4], batch.body, batch.count)
            assert sender._bytes <= 600_000
            at = batch.next
    found = [message.body for queue in queues for message in stored(peer, queue)]
    assert sorted(found) == [b"%08d" % n + bytes(9000) for n in range(200)]


def test_a_broker_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker-a", settings={"brokerName": "broker-a"}) as broker:
        with blocking.Admin(name_server=broker.name_server) as admin:
            admin.create_topic("T", 1)
        with Sender(Cluster(name_server=broker.name_server)) as sender:
            (queue,) = sender.queues("T")
            assert sender.send_batch(queue, item(1), 1).wait() == range(1)
            broker.stop()
            starting = threading.Thread(target=broker.start)
            starting.start()
            pending = sender.send_batch(queue, item(2), 1)
            assert pending.wait() == range(1, 2)
            starting.join()


def test_a_broker_that_stays_away_is_an_error_that_says_where(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker-a", settings={"brokerName": "broker-a"}) as broker:
        with blocking.Admin(name_server=broker.name_server) as admin:
            admin.create_topic("T", 1)
        with (
            pytest.raises(SendFailed, match=r"^T@broker-a:0: "),
            Sender(Cluster(name_server=broker.name_server), timeout_s=0.5) as sender,
        ):
            broker_ends(broker, sender)


def broker_ends(broker: LocalBroker, sender: Sender) -> None:
    (queue,) = sender.queues("T")
    sender.send_batch(queue, item(1), 1).wait()
    broker.kill()
    with pytest.raises(SendFailed):
        sender.send_batch(queue, item(2), 1).wait()


def test_a_fenced_master_is_left_for_the_new_one(background_loop: BackgroundLoop) -> None:
    """It stays connected and refuses everything with code 14, while name servers name another address."""
    cluster = background_loop.enter(Scripted("a", "b"))
    fenced, new = cluster.brokers["a"], cluster.brokers["b"]
    with Sender(Cluster(name_server=cluster.name_server), timeout_s=5) as sender:
        queue = MessageQueue("t", "a", 0)
        assert sender.send_one(queue, 0, b"before", b"").wait() == range(1)
        fenced.script, fenced.address = [14] * 10_000, new.address
        assert sender.send_one(queue, 0, b"after", b"").wait() == range(1)
    assert [request.body for request in new.sent] == [b"after"]
