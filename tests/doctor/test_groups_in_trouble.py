"""Troubles of groups: each is made at a real broker, and found."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.protocol.fastjson import loads
from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.records import Connection, GroupConfig
from firearrow.client.cli.doctor.facts import Facts, Group, Progress, Queue
from tests.doctor.heartbeats import beat, lock
from tests.doctor.running import doctor_of, found_in
from tests.integration.test_due_messages import until_stored
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import pull, records, send, send_ext, topic_ext


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "store") as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


@contextmanager
def member(
    broker: BrokerProcess, group: str, client_id: str, topic: str, tags: str = "*"
) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        beat(connection, group, client_id, {topic: tags})
        yield connection


def fill(client: ClientSocket, topic: str, messages: int = 4, queues: int = 1) -> None:
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues)).code == 0
    for number in range(messages):
        assert send(client, topic, b"m", number % queues).code == 0


def commit(client: ClientSocket, group: str, topic: str, offset: int) -> None:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def test_different_subscriptions(broker: BrokerProcess) -> None:
    with member(broker, "Differ", "a", "Differ", "TagA"), member(broker, "Differ", "b", "Differ", "TagB"):
        said = doctor_of(broker)
    finding = said.about("group Differ")["group-subscriptions"]
    assert finding["severity"] == "CRITICAL"
    assert "a: CLUSTERING Differ TagA; b: CLUSTERING Differ TagB" in finding["found"]
    assert "firearrow group diff Differ" in finding["fix"]
    assert said.code == 1


def test_a_group_that_stands_and_its_message(broker: BrokerProcess, client: ClientSocket) -> None:
    fill(client, "Stands")
    answer = send(client, "Stands", b"poison")
    send(client, "Stands", b"after")
    with member(broker, "Stands", "a", "Stands"):
        commit(client, "Stands", "Stands", 4)
        time.sleep(1.1)
        finding = doctor_of(broker).about("group Stands")["group-stands-still"]
    assert "offset 4 of Stands queue 0" in finding["found"]
    assert "2 messages wait" in finding["found"]
    assert f"message {answer.ext['transactionId']}, " in finding["found"]
    assert f"firearrow message path Stands {answer.ext['transactionId']}" in finding["fix"]


def test_a_group_that_stands_on_its_first_message(broker: BrokerProcess, client: ClientSocket) -> None:
    """It has committed nothing yet."""
    fill(client, "First")
    with member(broker, "First", "a", "First"):
        time.sleep(1.1)
        finding = doctor_of(broker).about("group First")["group-stands-still"]
    assert "offset 0 of First queue 0" in finding["found"]
    assert "4 messages wait" in finding["found"]


def test_a_group_that_moves_does_not_stand(broker: BrokerProcess, client: ClientSocket) -> None:
    fill(client, "Moves", 200)
    stop = threading.Event()

    def work() -> None:
        with broker.connect() as own:
            for offset in range(1, 200):
                commit(own, "Moves", "Moves", offset)
                if stop.wait(0.05):
                    return

    with member(broker, "Moves", "a", "Moves"):
        commit(client, "Moves", "Moves", 1)
        time.sleep(1.1)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert doctor_of(broker).about("group Moves") == {}
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("consumed", [1, 3])
def test_a_group_whose_lag_only_grows(broker: BrokerProcess, client: ClientSocket, consumed: int) -> None:
    """Two messages come in each step, and it consumes one, or three of those that waited."""
    group, stop = f"Grows{consumed}", threading.Event()
    fill(client, group, 600)

    def work() -> None:
        with broker.connect() as own:
            for step in range(1, 200):
                for _ in range(2):
                    send(own, group, b"m")
                commit(own, group, group, consumed * step)
                if stop.wait(0.02):
                    return

    with member(broker, group, "a", group):
        commit(client, group, group, 1)
        time.sleep(1.1)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            found = doctor_of(broker).about(f"group {group}")
        finally:
            stop.set()
            thread.join()
    assert found.keys() == ({"group-lag-grows"} if consumed == 1 else set())
    if consumed == 1:
        assert "more than 500ms before" in found["group-lag-grows"]["found"]


def test_a_lag_that_grew_for_an_hour() -> None:
    """By the history of a broker, whose rows are ten seconds apart: it does not show while we watch."""
    progress = {Queue("T", "b", 0): Progress(0, 0, 70)}
    group = Group("G", members=(Connection("c", "", "JAVA", 513),), progress=progress)
    for lags, found in (
        ([10.0, 20.0, 30.0, 40.0, 50.0, 60.0], 1),
        ([10.0, 20.0, 30.0, 25.0, 50.0, 60.0], 0),
        ([60.0] * 6, 0),
        ([], 0),
    ):
        group.past_lags, group.past_ms = lags, 3_600_000
        findings = found_in(Facts(1, groups={"G": group}), "group-lag-grows")
        assert len(findings) == found
        assert all("50 more than 1h0m before" in finding.text for finding in findings)


def test_a_group_without_members(broker: BrokerProcess, client: ClientSocket) -> None:
    fill(client, "Alone")
    with member(broker, "Alone", "a", "Alone"):
        commit(client, "Alone", "Alone", 4)
    with member(broker, "AloneToo", "a", "Alone"):
        commit(client, "AloneToo", "Alone", 1)
    time.sleep(0.2)
    said = doctor_of(broker)
    assert said.about("group Alone")["groups-without-members"]["severity"] == "NOTE"
    late = said.about("group AloneToo")["groups-without-members"]
    assert late["severity"] == "WARNING"
    assert "3 messages wait" in late["found"]


def test_more_members_than_queues(broker: BrokerProcess, client: ClientSocket) -> None:
    fill(client, "Narrow", 0, queues=1)
    with broker.connect() as one, broker.connect() as two:
        for connection, client_id in ((one, "a"), (two, "b")):
            beat(connection, "Narrow", client_id, {"%RETRY%Narrow": "*", "Narrow": "*"})
        finding = doctor_of(broker).about("group Narrow")["more-members-than-queues"]
    assert finding["found"] == "2 members for 1 queue of Narrow"
    assert "`firearrow topic set Narrow --queues 2`" in finding["fix"]


def test_a_disabled_group(broker: BrokerProcess, client: ClientSocket) -> None:
    body = GroupConfig(group="Paused", consume_enabled=False).encode()
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    with member(broker, "Paused", "a", "Paused"):
        assert "disabled-groups" in doctor_of(broker).about("group Paused")


def test_an_ordered_queue_that_nobody_alive_holds(broker: BrokerProcess, client: ClientSocket) -> None:
    """Its owner is gone, and its lock lives for a minute."""
    fill(client, "Ordered")
    (broker_name,) = loads(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"]
    with member(broker, "Ordered", "owner", "Ordered") as owner:
        lock(owner, "Ordered", "owner", "Ordered", broker_name)
        assert not doctor_of(broker).of("ordered-queues-without-owner")
    with member(broker, "Ordered", "other", "Ordered"):
        time.sleep(0.3)
        (finding,) = doctor_of(broker).of("ordered-queues-without-owner")
    assert finding["subject"] == "group Ordered"
    assert "Ordered queue 0 at" in finding["found"]
    assert "is locked by owner, which is not connected" in finding["found"]


def test_a_retry_storm(broker: BrokerProcess, client: ClientSocket) -> None:
    with member(broker, "Storm", "a", "Storm"):
        for _ in range(99):
            assert send(client, "%RETRY%Storm", b"again").code == 0
        assert "retry-storms" not in doctor_of(broker).about("group Storm")
        assert send(client, "%RETRY%Storm", b"again").code == 0
        finding = doctor_of(broker).about("group Storm")["retry-storms"]
    assert finding["found"].startswith("100 retries")


def test_unread_dead_letters(broker: BrokerProcess, client: ClientSocket) -> None:
    fill(client, "Dead", 3)
    with member(broker, "Dead", "a", "Dead"):
        for number in range(3):
            _bury(client, "Dead", number)
        finding = doctor_of(broker).about("group Dead")["unread-dead-letters"]
        assert finding["found"] == "3 dead letters not read and not redriven"
        beat(client, "Reader", "reader", {"%DLQ%Dead": "*"})
        commit(client, "Reader", "%DLQ%Dead", 2)
        finding = doctor_of(broker).about("group Dead")["unread-dead-letters"]
        assert finding["found"] == "1 dead letter not read and not redriven"
        commit(client, "Reader", "%DLQ%Dead", 3)
        assert "unread-dead-letters" not in doctor_of(broker).about("group Dead")


def test_dead_letters_that_were_redriven(
    broker: BrokerProcess, client: ClientSocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the finding advises ends it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fill(client, "Again", 2)
    with member(broker, "Again", "a", "Again"):
        _bury(client, "Again", 0)
        finding = doctor_of(broker).about("group Again")["unread-dead-letters"]
        assert "`firearrow dlq redrive Again`" in finding["fix"]
        where = broker.running.name_server
        here("dlq", "redrive", "Again", "--yes", name_server=where).succeeded()
        assert "unread-dead-letters" not in doctor_of(broker).about("group Again")
        _bury(client, "Again", 1)
        finding = doctor_of(broker).about("group Again")["unread-dead-letters"]
        assert finding["found"].startswith("1 dead letter")


def test_messages_that_were_due_for_a_deleted_topic(broker: BrokerProcess, client: ClientSocket) -> None:
    ext = send_ext("Gone", i="TIMER_DELAY_MS\x01300\x02")
    assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"due").code == 0
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
    until_stored(client, "%DLQ%SCHEDULE_CONSUMER", 1)
    finding = doctor_of(broker).about("group SCHEDULE_CONSUMER")["unread-dead-letters"]
    assert finding["found"] == "1 dead letter not read and not redriven"
    assert "deleted topics" in finding["why"]


def _bury(client: ClientSocket, topic: str, number: int) -> None:
    """Send one message of the topic to the dead letters of the group of the same name."""
    record = next(records(pull(client, topic, number).body))
    ext = {
        "offset": str(record.physical_offset),
        "group": topic,
        "delayLevel": "-1",
        "originMsgId": "",
        "originTopic": topic,
        "unitMode": "false",
    }
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0


@pytest.mark.parametrize("version", [300, 391])
def test_old_clients(broker: BrokerProcess, version: int) -> None:
    with broker.connect() as connection:
        beat(connection, f"Old{version}", "old", {"Old": "*"}, version=version)
        finding = doctor_of(broker).about(f"group Old{version}")["client-versions"]
    assert "apache/rocketmq#2708" in finding["why"]


def test_clients_without_known_faults(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        beat(connection, "New", "new", {"New": "*"}, version=393)
        assert doctor_of(broker).about("group New") == {}


def test_messages_that_were_deleted_unread(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {
        "mappedFileSizeCommitLog": "65536",
        "fileReservedTime": "0",
        "deleteCommitLogFilesInterval": "0",
    }
    arguments = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
    store = tmp_path_factory.mktemp("expired") / "store"
    with BrokerProcess(store, *arguments) as broker, broker.connect() as client:
        fill(client, "Gone", 0)
        for _ in range(40):
            assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Gone"), bytes(8000)).code == 0
        beat(client, "Late", "a", {"Gone": "*"})
        commit(client, "Late", "Gone", 2)
        _delete_old_files(client, "Gone")
        finding = doctor_of(broker).about("group Late")["unread-expired"]
    assert finding["severity"] == "CRITICAL"
    assert "Gone queue 0" in finding["found"]


def _delete_old_files(client: ClientSocket, topic: str) -> None:
    def deleted() -> bool:
        assert client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        ext = {"topic": topic, "queueId": "0"}
        return client.ask(RequestCode.GET_MIN_OFFSET, ext).integer("offset") > 2

    eventually(deleted)
