"""`firearrow doctor` on an Apache broker: what its protocol says is checked, the rest is named with the reason."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.doctor.heartbeats import beat
from tests.doctor.running import QUICK, Said, doctor
from tests.interop.peers import BROKER, Apache, address
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, records, send, send_ext, topic_ext

pytestmark = pytest.mark.interop

NEEDS_FIREARROW = {
    "fsync-time",
    "file-descriptors",
    "flush-mode",
    "last-backup",
    "listen-addresses",
    "machine-clock",
    "memory-limit",
    "memory-mappings",
    "cgroup-tasks",
    "cgroup-cpu",
    "delay-levels-beyond",
    "refused-brokers",
    "ordered-queues-without-owner",
}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    with Apache(tmp_path_factory.mktemp("doctor") / "store", {"diskMaxUsedSpaceRatio": "95"}) as running:
        yield running


@pytest.fixture
def client(apache: Apache) -> Iterator[ClientSocket]:
    with ClientSocket(address(apache.address)) as connection:
        yield connection


def examined(apache: Apache) -> Said:
    return doctor("-n", apache.name_server, *QUICK)


def make(client: ClientSocket, topic: str, queues: int, messages: int) -> None:
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues)).code == 0
    for number in range(messages):
        assert send(client, topic, b"m", number % queues).code == 0
    deadline = time.monotonic() + 20
    while (
        client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}).integer("offset") * queues
        < messages
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def commit(client: ClientSocket, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "commitOffset": str(offset),
    }
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def test_a_fresh_broker_has_no_findings(apache: Apache) -> None:
    said = examined(apache)
    assert said.findings == []
    skipped = [
        each for each in said.skipped if each["check"] != "free-bytes"
    ]  # it has no commitlog folder yet
    assert {each["check"] for each in skipped} == NEEDS_FIREARROW
    assert {each["reason"] for each in skipped} == {
        "only FireArrow's broker says it",
        "only FireArrow's name server says it",
    }
    assert said.code == 0


def test_troubles_that_its_protocol_says(apache: Apache, client: ClientSocket) -> None:
    make(client, "Single", 1, 3)
    make(client, "Work", 4, 8)
    ahead = send_ext("Work", 3, g=str(time.time_ns() // 1_000_000 + 3_600_000))
    assert client.ask(RequestCode.SEND_MESSAGE_V2, ahead, bytes(1 << 20)).code == 0
    beat(client, "Work", "a", {"Work": "*"}, version=300)
    for queue_id, offset in enumerate((1, 2, 2, 3)):
        commit(client, "Work", "Work", offset, queue_id)
    with ClientSocket(address(apache.address)) as other:
        beat(other, "Work", "b", {"Work": "*"})
        beat(other, "Late", "b", {"Single": "*"})
        commit(other, "Late", "Single", 1)
        _bury(other, "Work")
        for _ in range(100):
            assert send(other, "%RETRY%Work", b"again").code == 0
        time.sleep(1.5)
        said = examined(apache)
        assert said.about("group Work").keys() >= {
            "group-stands-still",
            "client-versions",
            "unread-dead-letters",
            "retry-storms",
        }
        assert (
            "offset 1 of Work queue 0 at " + BROKER in said.about("group Work")["group-stands-still"]["found"]
        )
        assert said.about("topic Work").keys() == {"big-messages", "client-clocks"}
        assert said.about("topic Single").keys() == {"one-queue-topics"}
        assert "free-bytes" not in {each["check"] for each in said.skipped}
        silent = [each for each in said.skipped if each["subject"] == "group Work"]
        assert "did not say what they subscribe to" in silent[0]["reason"], "raw sockets answer no requests"
    time.sleep(1)
    late = examined(apache).about("group Late")["groups-without-members"]
    assert "2 messages wait" in late["found"]


@pytest.mark.long
def test_a_cluster_of_both_kinds_and_a_broker_that_died(apache: Apache, tmp_path: Path) -> None:
    """Apache's name server forgets a broker at once; the doctor has seen it before."""
    state, here = tmp_path / "state", ("-n", apache.name_server, *QUICK)
    names = "--namesrv", apache.name_server, "--namesrv-listen", "off", "--set", "brokerName=ours"
    before = doctor(*here, state=state).findings
    with BrokerProcess(tmp_path / "store", *names) as broker:
        eventually(lambda: b"ours" in cluster_info(apache))
        assert doctor(*here, state=state).findings == before
        broker.kill()
    eventually(lambda: b"ours" not in cluster_info(apache))
    (finding,) = [each for each in doctor(*here, state=state).findings if each not in before]
    assert (finding["check"], finding["subject"]) == ("absent-brokers", "broker ours")
    assert broker.running.address in finding["found"]


def cluster_info(apache: Apache) -> bytes:
    with ClientSocket(address(apache.name_server)) as names:
        return names.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body


def _bury(client: ClientSocket, topic: str) -> None:
    record = next(records(pull(client, topic).body))
    ext = {
        "offset": str(record.physical_offset),
        "group": topic,
        "delayLevel": "-1",
        "originTopic": topic,
        "unitMode": "false",
    }
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0
