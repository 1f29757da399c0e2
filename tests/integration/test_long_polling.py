"""Long polling over the wire: hold, wake, deadline, disconnect; and the responses of pulls."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    pull,
    pull_ext,
    read_queue,
    records,
    send,
    send_ext,
    topic_ext,
)

HELD = str(SUBSCRIPTION | SUSPEND)
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("polling") / "store") as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def hold(connection: ClientSocket, topic: str, offset: int, wait_ms: int = 15_000, **more: str) -> int:
    """Send it, and make sure that the broker has read it."""
    ext = pull_ext(topic, offset, sysFlag=HELD, suspendTimeoutMillis=str(wait_ms)) | more
    opaque = connection.send_request(RequestCode.PULL_MESSAGE, ext)
    connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return opaque


def test_an_arrival_wakes_it_at_once(broker: BrokerProcess) -> None:
    delays = []
    with broker.connect() as consumer, broker.connect() as producer:
        assert send(producer, "Wake", b"0").code == 0
        for n in range(1, 6):
            opaque = hold(consumer, "Wake", n)
            begun = time.monotonic()
            producer.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("Wake"), b"%d" % n)
            answer = consumer.answer_to(opaque)
            delays.append(time.monotonic() - begun)
            producer.receive()
            assert answer.code == FOUND
            assert [record.body for record in records(answer.body)] == [b"%d" % n]
    assert min(delays) < 0.05


def test_another_tag_does_not_wake_it(broker: BrokerProcess) -> None:
    with broker.connect() as consumer, broker.connect() as producer:
        assert send(producer, "Tags", b"0").code == 0
        opaque = hold(consumer, "Tags", 1, subscription="wanted")
        assert send(producer, "Tags", b"1", tag="other").code == 0
        consumer.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            consumer.receive()
        consumer.socket.settimeout(20)
        assert send(producer, "Tags", b"2", tag="wanted").code == 0
        answer = consumer.answer_to(opaque)
        assert [record.body for record in records(answer.body)] == [b"2"]


def test_the_deadline_answers(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        assert send(connection, "Late", b"0").code == 0
        begun = time.monotonic()
        answer = connection.answer_to(hold(connection, "Late", 1, wait_ms=300))
        assert answer.code == NOT_FOUND
        assert 0.29 <= time.monotonic() - begun < 2
        assert answer.ext["nextBeginOffset"] == "1"


def test_a_disconnected_client_costs_nothing(broker: BrokerProcess) -> None:
    with broker.connect() as producer:
        assert send(producer, "Gone", b"0").code == 0
        for _ in range(50):
            with broker.connect() as consumer:
                hold(consumer, "Gone", 1)
        assert send(producer, "Gone", b"1").code == 0
        assert len(read_queue(producer, "Gone", 0)) == 2


def test_a_stop_answers_held_pulls(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as running, running.connect() as connection:
        assert send(connection, "Stop", b"0").code == 0
        opaque = hold(connection, "Stop", 1, wait_ms=60_000)
        assert running.stop(within_s=3) == 0
        assert connection.answer_to(opaque).code == NOT_FOUND


def test_two_thousand_held_pulls(broker: BrokerProcess) -> None:
    with broker.connect() as consumer, broker.connect() as producer:
        assert send(producer, "Crowd", b"0").code == 0
        ext = pull_ext("Crowd", 1, sysFlag=HELD, suspendTimeoutMillis="20000")
        opaques = {consumer.send_request(RequestCode.PULL_MESSAGE, ext) for _ in range(2000)}
        consumer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Crowd", "queueId": "0"})
        assert send(producer, "Crowd", b"1").code == 0
        answered = [consumer.receive() for _ in range(2000)]
        assert {answer.opaque for answer in answered} == opaques
        assert {answer.code for answer in answered} == {FOUND}


def test_sync_flush_delivers_what_is_synced(tmp_path: Path) -> None:
    """A producer that does not wait is answered before the sync; the consumer is woken after it."""
    with (
        BrokerProcess(tmp_path / "store", "--set", "flushDiskType=SYNC_FLUSH") as running,
        running.connect() as consumer,
        running.connect() as producer,
    ):
        assert send(producer, "Sync", b"0").code == 0
        opaque = hold(consumer, "Sync", 1)
        answer = producer.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Sync", i="WAIT\x01false\x02"), b"1")
        assert answer.code == 0
        assert [record.body for record in records(consumer.answer_to(opaque).body)] == [b"1"]
        assert running.stop() == 0


def test_statuses(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Status")).code == 0
        empty = pull(connection, "Status")
        assert (empty.code, empty.remark) == (NOT_FOUND, "NO_MESSAGE_IN_QUEUE") or empty.code == NOT_FOUND
        assert pull(connection, "Status", 5).code == MOVED
        assert send(connection, "Status", b"0", tag="a").code == 0
        one = pull(connection, "Status", 1)
        assert (one.code, one.remark) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        far = pull(connection, "Status", 2)
        assert (far.code, far.remark) == (MOVED, "OFFSET_OVERFLOW_BADLY")
        other = pull(connection, "Status", subscription="b")
        assert (other.code, other.remark) == (RETRY, "NO_MATCHED_MESSAGE")
        assert other.ext["nextBeginOffset"] == "1"
        assert pull(connection, "NoSuchTopicAtAll").code == 17


def test_limits_of_one_response(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        for n in range(40):
            assert send(connection, "Limits", b"%d" % n).code == 0
        assert len(list(records(pull(connection, "Limits", maxMsgNums="1000").body))) == 32
        assert len(list(records(pull(connection, "Limits", maxMsgNums="3").body))) == 3
        for _ in range(4):
            assert send(connection, "LimitsOfBytes", bytes(100_000)).code == 0
        assert 1 <= len(list(records(pull(connection, "LimitsOfBytes").body))) <= 3


def test_a_commit_comes_with_the_pull(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        assert send(connection, "Commit", b"0").code == 0
        flags = str(SUBSCRIPTION | COMMIT)
        assert pull(connection, "Commit", sysFlag=flags, commitOffset="1", consumerGroup="Along").code == 0
        asked = {"consumerGroup": "Along", "topic": "Commit", "queueId": "0"}
        answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        assert (answer.code, answer.ext) == (0, {"offset": "1"})


@pytest.mark.parametrize("serializer", [0, 1])
def test_answers_come_in_the_form_of_the_request(broker: BrokerProcess, serializer: int) -> None:
    with broker.connect() as connection:
        assert send(connection, "Form", b"0").code == 0
        answer = connection.ask(RequestCode.PULL_MESSAGE, pull_ext("Form"), serializer=serializer)
        assert answer.code == 0
        assert answer.serializer == serializer


def test_one_way_sends_are_stored_and_not_answered(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        for n in range(10):
            connection.send(
                RemotingCommand.request(
                    RequestCode.SEND_MESSAGE_V2, send_ext("OneWay"), b"%d" % n, oneway=True
                )
            )
        connection.send(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {}, b"bad", oneway=True))
        opaque = connection.send_request(RequestCode.GET_MAX_OFFSET, {"topic": "OneWay", "queueId": "0"})
        assert connection.receive().opaque == opaque
        assert [record.body for record in read_queue(connection, "OneWay", 0)] == [
            b"%d" % n for n in range(10)
        ]


def heartbeat(
    connection: ClientSocket, group: str, topic: str, version: int, model: str = "CLUSTERING"
) -> None:
    subscription = {
        "topic": topic,
        "subString": "*",
        "subVersion": version,
        "expressionType": "TAG",
        "classFilterMode": False,
        "tagsSet": [],
        "codeSet": [],
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = json.dumps(
        {"clientID": f"{group}@1", "consumerDataSet": [consumer], "producerDataSet": []}
    ).encode()
    assert connection.ask(RequestCode.HEART_BEAT, {}, body).code == 0


def test_a_pull_with_the_subscription_of_the_heartbeat(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        assert send(connection, "Versions", b"0").code == 0
        assert pull(connection, "Versions", consumerGroup="V", sysFlag="0").code == 24
        heartbeat(connection, "V", "Versions", 100)
        assert pull(connection, "Versions", consumerGroup="V", sysFlag="0", subVersion="100").code == 0
        assert pull(connection, "Versions", consumerGroup="V", sysFlag="0", subVersion="101").code == 25
        assert send(connection, "VersionsOther", b"0").code == 0
        assert pull(connection, "VersionsOther", consumerGroup="V", sysFlag="0").code == 24


@pytest.mark.parametrize(
    ("change", "model", "forbidden"),
    [({"consumeEnable": False}, "CLUSTERING", "2"), ({"consumeBroadcastEnable": False}, "BROADCASTING", "4")],
)
def test_forbidden_pulls_say_what_forbids_them(
    broker: BrokerProcess, change: dict[str, bool], model: str, forbidden: str
) -> None:
    with broker.connect() as connection:
        assert send(connection, "Forbidden", b"0").code == 0
        group = {"groupName": f"F{forbidden}"} | change
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert connection.ask(code, {}, json.dumps(group).encode()).code == 0
        heartbeat(connection, f"F{forbidden}", "Forbidden", 1, model)
        answer = pull(connection, "Forbidden", consumerGroup=f"F{forbidden}", sysFlag="0")
        assert (answer.code, answer.ext.get("forbiddenType")) == (16, forbidden)


def test_a_topic_that_may_not_be_read(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        ext = topic_ext("WriteOnly") | {"perm": "2"}
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        answer = pull(connection, "WriteOnly")
        assert (answer.code, answer.ext.get("forbiddenType")) == (16, "3")
