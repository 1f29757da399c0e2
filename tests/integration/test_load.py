"""Large requests, clients that do not read, and limits: no other client waits long, memory stays bounded."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.integration.latency_probe import LatencyProbe
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull_ext, records, send, topic_ext

WORST_S = 0.5
"""Generous: the machine that runs the tests does other work, too."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store") as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def test_a_peer_that_does_not_read(broker: BrokerProcess) -> None:
    """It requests 500 MB and reads none: bounded memory, others are served; then all responses arrive in order."""
    wanted = 2500
    with broker.connect() as deaf, broker.connect() as producer:
        for n in range(2):
            assert send(producer, "Deaf", bytes([n]) * 100_000).code == 0
        before = broker.anonymous_kib()
        with LatencyProbe(broker) as probe:
            opaques = [
                deaf.send_request(RequestCode.PULL_MESSAGE, pull_ext("Deaf", n % 2)) for n in range(wanted)
            ]
            for _ in range(50):
                assert send(producer, "Other", b"x").code == 0
            assert broker.anonymous_kib() - before < 40_000
            for n, opaque in enumerate(opaques):
                answer = deaf.receive()
                assert (answer.opaque, answer.code) == (opaque, 0)
                assert next(records(answer.body)).queue_offset == n % 2
        assert probe.worst_s < WORST_S


def subscription(topic: str) -> dict[str, object]:
    return {
        "topic": topic,
        "subString": "*",
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
        "tagsSet": [],
        "codeSet": [],
    }


def heartbeat(subscriptions: int) -> bytes:
    group = {
        "groupName": "Heavy",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [subscription(f"T{n}") for n in range(subscriptions)],
    }
    return json.dumps({"clientID": "heavy", "consumerDataSet": [group], "producerDataSet": []}).encode()


def test_a_heartbeat_of_100_000_subscriptions(broker: BrokerProcess) -> None:
    body = heartbeat(100_000)
    assert len(body) < 16 << 20
    with broker.connect() as heavy, LatencyProbe(broker) as probe:
        assert heavy.ask(RequestCode.HEART_BEAT, {}, body).code in (0, 1, 2)
    assert probe.worst_s < 2 * WORST_S


def test_a_thousand_topics_at_once(broker: BrokerProcess) -> None:
    with broker.connect() as maker, LatencyProbe(broker) as probe:
        opaques = [
            maker.send_request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(f"Many{n}"))
            for n in range(1000)
        ]
        answers = [maker.receive() for _ in opaques]
        assert [(answer.opaque, answer.code) for answer in answers] == [(opaque, 0) for opaque in opaques]
        listed = maker.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
        assert all(f'"Many{n}"'.encode() in listed for n in range(1000))
    assert probe.worst_s < WORST_S


def refused(connection: ClientSocket, code: int, ext: dict[str, str], body: bytes = b"") -> str:
    answer = connection.ask(code, ext, body)
    assert answer.code != 0
    return answer.remark or ""


def test_queues_of_a_topic_are_bounded(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        for queues in (2**31 - 1, 4097, -1):
            assert refused(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Queues", queues))
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Queues", 4096)).code == 0


def test_retry_queues_of_a_group_are_bounded(broker: BrokerProcess) -> None:
    group = {"groupName": "Retries", "retryQueueNums": 2**31 - 1}
    with broker.connect() as connection:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert "retryQueueNums" in refused(connection, code, {}, json.dumps(group).encode())


def test_topics_are_bounded(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "few", "--set", "maxTopicNums=64") as few, few.connect() as connection:
        codes = [send(connection, f"Bound{n}", b"x").code for n in range(80)]
        assert codes[0] == 0
        assert codes[-1] != 0
        made = json.loads(connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)
        assert made["table"]["msgPutTotalTodayNow"] == str(codes.count(0))


def test_kv_entries_are_bounded(broker: BrokerProcess) -> None:
    with broker.connect_name_server() as naming:
        big = {"namespace": "N", "key": "k", "value": "v" * 900_000}
        codes = set()
        for n in range(200):
            codes.add(naming.ask(RequestCode.PUT_KV_CONFIG, big | {"key": f"k{n}"}).code)
        assert codes != {0}


def test_options_that_change_at_run_time(broker: BrokerProcess) -> None:
    code = RequestCode.UPDATE_BROKER_CONFIG
    with broker.connect() as connection:
        assert connection.ask(code, {}, b"maxMessageSize=1000\n").code == 0
        assert send(connection, "Tuned", bytes(1001)).code == 13
        assert send(connection, "Tuned", bytes(1000)).code == 0
        for key in (
            "storePathRootDir",
            "listenPort",
            "bindAddress",
            "brokerName",
            "brokerIP1",
            "brokerClusterName",
        ):
            assert key in refused(connection, code, {}, f"{key}=1\nmaxMessageSize=2000".encode())
        for body in (b"noSuchKey=1", b"maxMessageSize=-1", b"\xff\xff"):
            assert refused(connection, code, {}, body)
        in_force = connection.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
        assert "maxMessageSize=1000" in in_force
