"""Promotions while clients send and consume, at any moment of a kill, and with deliveries that wait."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client import (
    ClientOptions,
    ConsumeFromWhere,
    Message,
    ProducerOptions,
    PushConsumerOptions,
    SendStatus,
)
from firearrow.client.base.errors import ClientError
from firearrow.client.blocking import Producer, PushConsumer
from tests.replication.pairs import TOPIC, end_of, fill
from tests.replication.promoted_pair import (
    PromotedPair,
    is_master,
    promoted,
    state_of,
)
from tests.replication.raw_slave import status_of
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send, send_ext, topic_ext

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2", "slaveTimeout": "2000"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PromotedPair]:
    with PromotedPair(tmp_path) as pair:
        yield pair


class Sender:
    """A producer in a thread. `stored`: what was answered with SEND_OK."""

    def __init__(self, names: str) -> None:
        self.stored: list[bytes] = []
        self._stop = threading.Event()
        client = ClientOptions(name_server=names, poll_name_server_s=1)
        options = ProducerOptions(send_timeout_s=10, retries=8)
        self._producer = Producer("Load", client=client, options=options)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._producer as producer:
            number = 0
            while not self._stop.is_set():
                body = b"%06d" % number
                number += 1
                with suppress(ClientError):
                    if producer.send(Message(TOPIC, body)).status is SendStatus.SEND_OK:
                        self.stored.append(body)

    def __enter__(self) -> "Sender":
        self._thread.start()
        eventually(lambda: len(self.stored) > 50, what="the first sends")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def more(self, count: int) -> None:
        wanted = len(self.stored) + count
        eventually(lambda: len(self.stored) >= wanted, 60, "more sends")


@contextmanager
def consumer(names: str) -> Iterator[list[bytes]]:
    """The bodies that it got."""
    found: list[bytes] = []
    consumer = PushConsumer("Readers", client=ClientOptions(name_server=names, poll_name_server_s=1))
    consumer.subscribe(TOPIC, lambda messages: found.extend(message.body for message in messages))
    with consumer:
        yield found


def test_clients_go_on_while_a_slave_takes_over(pair: PromotedPair) -> None:
    names = pair.names
    with pair.master.connect() as client:
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
    pair.knows(TOPIC)
    with consumer(names) as found, Sender(names) as sender:
        eventually(lambda: len(found) > 20, what="the first messages")
        promoted(pair.slave).succeeded()
        sender.more(100)
        sender.__exit__()
        eventually(lambda: set(found) >= set(sender.stored), 60, "that nothing is lost")
    repeated = [body for body, count in Counter(found).items() if count > 1]
    assert repeated == []


def test_a_promotion_takes_clients_no_half_minute(pair: PromotedPair) -> None:
    """With all defaults: the old master's answers and lost connections make a client ask for routes."""
    with pair.master.connect() as client:
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
    pair.knows(TOPIC)
    got, refused = [], 0
    consumer = PushConsumer(
        "Late", name_server=pair.names, options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )
    consumer.subscribe(TOPIC, lambda messages: got.extend(message.body for message in messages))
    with consumer, Producer("Load", name_server=pair.names) as producer, ThreadPoolExecutor(1) as beside:
        producer.send(Message(TOPIC, b"first"))
        ran = beside.submit(promoted, pair.slave)
        sent, answered = [], time.monotonic()
        gap = 0.0
        while not ran.done() or len(sent) < 200:
            body = b"%06d" % len(sent)
            try:
                producer.send(Message(TOPIC, body))
            except ClientError:
                refused += 1
            else:
                sent.append(body)
                gap, answered = max(gap, time.monotonic() - answered), time.monotonic()
            assert time.monotonic() - answered < 5
            time.sleep(0.01)
        ran.result().succeeded()
        for number in range(50):
            producer.send(Message(TOPIC, b"after %d" % number))
        eventually(lambda: b"after 49" in got, 6, "messages of the new master")
    assert (gap < 3, refused < 50) == (True, True), (gap, refused)


def test_what_a_sync_master_answered_is_at_the_promoted_slave(tmp_path: Path) -> None:
    with PromotedPair(tmp_path, **SYNC) as pair:
        with pair.master.connect() as client:
            eventually(lambda: status_of(client)["inSyncSlaveNums"] == 1, what="the slave")
            client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
        pair.knows(TOPIC)
        with Sender(pair.names) as sender:
            pair.master.kill()
            promoted(pair.slave, "--role", "ASYNC_MASTER").succeeded()
            sender.more(50)
            pair.master = pair.start_master()
            eventually(lambda: state_of(pair.master) == "fenced", what="that the old master is fenced")
            sender.more(50)
        with pair.slave.connect() as client:
            stored = [record.body for queue in range(4) for record in read_queue(client, TOPIC, queue)]
        assert set(stored) >= set(sender.stored)
        in_flight = [body for body, count in Counter(stored).items() if count > 1]
        assert len(in_flight) <= 1


def test_a_kill_at_any_moment_leaves_a_slave_or_a_master(pair: PromotedPair) -> None:
    draw = random.Random(5)
    with pair.master.connect() as client:
        fill(client, 50)
        end = end_of(client)
    pair.caught_up()
    pair.master.kill()
    found = Counter[bool]()
    for round_number in range(12):
        with pair.slave.connect() as client:
            client.send_request(RequestCode.PROMOTE_BROKER)
            time.sleep(draw.random() * 0.12 if round_number else 0)
            pair.slave.kill()
        pair.slave = pair.start_slave()
        with pair.slave.connect() as client:
            found[is_master(client)] += 1
            assert end_of(client) == end
            code = send(client, TOPIC, b"after").code if is_master(client) else 2
            assert code == (0 if is_master(client) else 2)
            end = end_of(client)
        epochs = pair.slave.store / "epochFileCheckpoint"
        assert ("\n2-" in epochs.read_text()) == is_master_now(pair)
        if is_master_now(pair):
            break
    assert found[True] == 1


def is_master_now(pair: PromotedPair) -> bool:
    with pair.slave.connect() as client:
        return is_master(client)


def test_what_waits_is_delivered_once(pair: PromotedPair) -> None:
    """Delay levels and timers: those that the old master delivered, and those that it left."""
    with pair.master.connect() as client:
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
        pair.knows(TOPIC)
        due = time.time() + 6
        for number in range(8):
            early, late = b"early %d" % number, b"late %d" % number
            client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i="DELAY\x011\x02"), early)
            client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i="DELAY\x012\x02"), late)
            early, late = b"timer early %d" % number, b"timer late %d" % number
            client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i="TIMER_DELAY_MS\x011500\x02"), early)
            due_ms = f"TIMER_DELIVER_MS\x01{int(1000 * due)}\x02"
            client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i=due_ms), late)
        eventually(lambda: len(read_queue(client, TOPIC, 0)) == 16, what="the early ones")
    promoted(pair.slave).succeeded()
    assert time.time() < due
    with pair.slave.connect() as client:
        eventually(lambda: len(read_queue(client, TOPIC, 0)) >= 32, what="the late ones")
        time.sleep(1)
        bodies = Counter(record.body for record in read_queue(client, TOPIC, 0))
    assert len(bodies) == 32
    assert set(bodies.values()) == {1}


def test_offsets_past_the_end_are_taken_back(pair: PromotedPair) -> None:
    """A group that consumed what only the old master had gets the next messages."""
    with pair.master.connect() as client:
        fill(client, 40)
        group = json.dumps({"groupName": "CG"}).encode()
        client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
        ext = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "25"}).code == 0
    pair.caught_up()
    with pair.slave.connect() as client:
        committed = ext | {"setZeroIfNotFound": "true"}
        eventually(
            lambda: client.ask(RequestCode.QUERY_CONSUMER_OFFSET, committed).ext.get("offset") == "25",
            what="the group's offset",
        )
        pair.master.kill()
        promoted(pair.slave).succeeded()
    with pair.slave.connect() as client:
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, committed).ext["offset"] == "10"
