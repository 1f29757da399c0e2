"""Consumers that are slower than retention: they get the queue's new first offset, and continue there."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.pushing import Seen, consumer
from tests.interop.driver import Driver
from tests.interop.toolchain import java_class_path, need
from tests.soak.fast_broker import FastBroker
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, send

BODY = b"x" * 4000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FastBroker]:
    with FastBroker(tmp_path / "store", autoCreateTopicEnable="true") as broker:
        yield broker


def bounds(peer: ClientSocket, topic: str) -> tuple[int, int]:
    """The queue's first offset, and the one after its last."""
    ext = {"topic": topic, "queueId": "0"}
    low, high = (
        peer.ask(code, ext).ext["offset"] for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    )
    return int(low), int(high)


def fill(peer: ClientSocket, topic: str, count: int) -> None:
    for _ in range(count):
        assert send(peer, topic, BODY).code == 0


def until_gone(peer: ClientSocket, topic: str, below: int) -> int:
    """Send and delete until the queue begins at `below` or later; then deletion stops. Returns its first offset."""
    deadline = time.monotonic() + 20
    while bounds(peer, topic)[0] < below:
        assert time.monotonic() < deadline, "nothing was deleted"
        fill(peer, topic, 20)
        time.sleep(0.02)
    assert peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=1000000\n").code == 0
    fill(peer, topic, 1)
    low = -1
    while low != (low := bounds(peer, topic)[0]):  # a round that had begun ends
        time.sleep(0.3)
    return low


def test_a_pull_below_the_first_message_gets_its_offset(broker: FastBroker) -> None:
    with broker.connect() as peer:
        fill(peer, "T", 200)
        low = until_gone(peer, "T", 100)
        answer = pull(peer, "T", low - 1)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        first = int(answer.ext["nextBeginOffset"])
        assert first == int(answer.ext["minOffset"]) >= low
        found = pull(peer, "T", first)
        if found.code == 0:
            assert next(records(found.body)).queue_offset == first
        stats = peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
        assert b'"minOffset":%d' % bounds(peer, "T")[0] in stats.body
        info = peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b'"commitLogMinOffset":"%d"' % broker.segments()[0] in info.body


class Awaited(Seen):
    """`came` is set when a message with that body was received."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body
        self.came = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        await super().__call__(messages)
        if self._body in self.bodies:
            self.came.set()


async def consume(member: PushConsumer, seen: Awaited) -> None:
    async with member, asyncio.timeout(20):
        await seen.came.wait()


def test_the_python_client_continues_at_the_new_first_message(broker: FastBroker) -> None:
    with broker.connect() as peer:
        fill(peer, "T", 1)
    seen = Awaited(BODY)
    first = consumer(broker.name_server, "T", seen)
    asyncio.run(consume(first, seen))
    with broker.connect() as peer:
        low = until_gone(peer, "T", 50)
        assert send(peer, "T", b"last").code == 0
        high = bounds(peer, "T")[1]
    again = Awaited(b"last")
    second = PushConsumer(first.group, name_server=broker.name_server, options=first.options)
    second.subscribe("T", again)
    asyncio.run(consume(second, again))
    offsets = sorted(message.queue_offset for message in again.messages if message.queue_id == 0)
    assert offsets == list(range(low, high))


@pytest.mark.interop
def test_the_java_client_continues_at_the_new_first_message(broker: FastBroker, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    with Driver("java5", broker.name_server, tmp_path / "java") as client, broker.connect() as peer:
        fill(peer, "T", 1)
        client.ask("consume", name="one", group="G", topic="T")
        client.await_count("one", 1)
        client.ask("stop", name="one")
        low = until_gone(peer, "T", 50)
        client.ask("consume", name="two", group="G", topic="T")
        assert send(peer, "T", b"last").code == 0
        high = bounds(peer, "T")[1]
        client.await_bodies(["two"], [b"last".hex()])
        client.await_count("two", high - low)  # several threads handle them
        offsets = sorted(event["queueOffset"] for event in client.consumed("two") if event["queueId"] == 0)
        client.ask("stop", name="two")
    assert offsets == list(range(low, high))
