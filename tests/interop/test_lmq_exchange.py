"""A store with LMQs, a popping group and offsets of both kinds moves between brokers, read by raw frames."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from tests.integration.test_assignment import assigned, join
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.messages import wait_for_messages
from tests.support.requests import send_ext, topic_ext

pytestmark = pytest.mark.interop

Open = Callable[[Path, dict[str, str]], AbstractContextManager[FireArrow] | AbstractContextManager[Apache]]
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": "100000",
    "brokerName": "broker-a",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
COUNT = 300
PLACE = {"consumerGroup": "%LMQ%reader", "topic": "%LMQ%all", "queueId": "0"}


def put(client: ClientSocket, first: int) -> None:
    for n in range(first, first + COUNT):
        ext = send_ext(
            "Shared", n % 4, i=f"INNER_MULTI_DISPATCH\x01%LMQ%all,%LMQ%{n % 3}\x02KEYS\x01k{n}\x02"
        )
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"%d" % n)
        assert answer.code == 0, answer.remark


def described(found: list[Record]) -> list[tuple[bytes, str, int, int, str]]:
    """What identifies a record, in any queue."""
    return [
        (one.body, one.topic, one.queue_id, one.queue_offset, one.properties["INNER_MULTI_QUEUE_OFFSET"])
        for one in found
    ]


def read(client: ClientSocket, count: int) -> list[list[tuple[bytes, str, int, int, str]]]:
    """Each LMQ, as soon as it has all of its `count` messages."""
    shares = {"%LMQ%all": count} | {f"%LMQ%{n}": len(range(n, count, 3)) for n in range(3)}
    return [described(wait_for_messages(client, name, share)) for name, share in shares.items()]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param(FireArrow, Apache, id="ours"),
        pytest.param(Apache, FireArrow, id="theirs", marks=pytest.mark.long),
    ],
)
def test_light_queues_change_hands(writer: Open, reader: Open, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    mode = {"topic": "Shared", "consumerGroup": "Sharers", "mode": "POP", "popShareQueueNum": 0}
    with writer(tmp_path / "store", SETTINGS) as peer, ClientSocket(address(peer.address)) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Shared", 4)).code == 0
        put(client, 0)
        written = read(client, COUNT)
        assert [body for body, *_ in written[0]] == [b"%d" % n for n in range(COUNT)]
        commit = PLACE | {"commitOffset": "123"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode()).code == 0
        peer.stop()
    with reader(tmp_path / "store", SETTINGS) as peer, ClientSocket(address(peer.address)) as client:
        assert read(client, COUNT) == written
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, PLACE).ext["offset"] == "123"
        put(client, COUNT)
        both = read(client, 2 * COUNT)
        assert [after[: len(before)] for before, after in zip(written, both, strict=True)] == written
        assert [offsets for *_, offsets in both[0]] == [f"{n},{n // 3}" for n in range(2 * COUNT)]
        join(client, "c1")
        assert pops(client) == [("broker-a", -1, "POP")]
        peer.stop()


def pops(client: ClientSocket, within_s: float = 20) -> list[tuple[str, int, str]] | None:
    """The assignment, once the broker knows the route."""
    deadline = time.monotonic() + within_s
    while not (found := assigned(client, "c1")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
