"""What a slave answers: what it refuses and how, pulls with their offsets, where readers are sent."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import TOPIC, fill, ha_client
from tests.replication.scene import Scene
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, pull_ext, records, send_ext, topic_ext

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
GROUP = b'{"groupName":"G","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
SUSPEND = 2 | 4


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, ClientSocket]]:
    scene = Scene(tmp_path_factory.mktemp("answers"))
    try:
        scene.fill(40)
        with scene.slave() as slave, slave.connect() as connection:
            scene.caught_up(connection)
            topic = {"topic": TOPIC}
            eventually(
                lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, topic).code == 0, what="the topic"
            )
            yield scene, connection
    finally:
        scene.close()


Shared = tuple[Scene, ClientSocket]


@pytest.mark.parametrize(
    ("code", "ext", "body", "answer", "remark"),
    [
        (RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"x", 2, REJECTED),
        (RequestCode.SEND_BATCH_MESSAGE, send_ext(TOPIC, m="true"), b"x", 2, REJECTED),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "G"}, b"", 2, REJECTED),
        (RequestCode.END_TRANSACTION, {}, b"", 11, "transaction"),
        (RequestCode.RECALL_MESSAGE, {}, b"", 11, "recall failed, broker service not available"),
        (RequestCode.POP_MESSAGE, {}, b"", 11, "pop and acknowledge at the master"),
        (RequestCode.ACK_MESSAGE, {}, b"", 11, "pop and acknowledge at the master"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("New"), b"", 1, "Can't modify topic"),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, b"", 1, "Can't modify topic"),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP, 1, "Can't modify topic"),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {}, b"", 1, "Can not reset offset in slave broker"),
    ],
)
def test_what_a_slave_refuses(
    shared: Shared, code: int, ext: dict[str, str], body: bytes, answer: int, remark: str
) -> None:
    scene, slave = shared
    end = scene.end()
    refused = slave.ask(code, ext, body)
    assert (refused.code, remark in (refused.remark or "")) == (answer, True), refused.remark
    assert ha_client(slave)["maxOffset"] == end


def test_offsets_that_may_come_are_held_and_others_corrected(shared: Shared) -> None:
    scene, slave = shared
    end = int(pull(slave, TOPIC).ext["maxOffset"])
    past = pull(slave, TOPIC, end + 5)
    assert (past.code, past.ext["nextBeginOffset"]) == (19, str(end + 5))
    suspended = {"sysFlag": str(SUSPEND), "suspendTimeoutMillis": "700"}
    began = time.monotonic()
    held = slave.ask(RequestCode.PULL_MESSAGE, pull_ext(TOPIC, end + 5, **suspended))
    assert held.code == 19
    assert time.monotonic() - began >= 0.6
    opaque = slave.send_request(
        RequestCode.PULL_MESSAGE,
        pull_ext(TOPIC, end + 1, **suspended | {"suspendTimeoutMillis": "15000"}),
    )
    scene.fill(8)
    came = slave.answer_to(opaque)
    assert came.code == 0
    assert [record.queue_offset for record in records(came.body)] == [end + 1]
    new = pull(slave, TOPIC, 3, queue_id=0)
    assert new.code == 0
    assert new.ext["suggestWhichBrokerId"] == "0"


def test_offset_check_in_slave_corrects_as_apache_does(shared: Shared) -> None:
    _, slave = shared
    set_option(slave, "offsetCheckInSlave", "true")
    try:
        end = int(pull(slave, TOPIC).ext["maxOffset"])
        past = pull(slave, TOPIC, end + 5)
        assert (past.code, past.ext["nextBeginOffset"]) == (21, str(end))
    finally:
        set_option(slave, "offsetCheckInSlave", "false")


def test_pulls_without_slave_read_enable_are_rejected(shared: Shared) -> None:
    _, slave = shared
    set_option(slave, "slaveReadEnable", "false")
    try:
        assert (pull(slave, TOPIC).code, pull(slave, TOPIC).remark) == (2, REJECTED)
    finally:
        set_option(slave, "slaveReadEnable", "true")
    assert pull(slave, TOPIC).code == 0


def test_commits_are_kept_until_the_masters_value_comes(shared: Shared) -> None:
    scene, slave = shared
    offset = {"consumerGroup": "Committer", "topic": TOPIC, "queueId": "1"}
    assert (
        scene.connection.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP.replace(b'G"', b'Committer"', 1)
        ).code
        == 0
    )
    eventually(
        lambda: slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset | {"commitOffset": "3"}).code == 0,
        what="the group",
    )
    assert slave.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset).ext["offset"] == "3"
    assert scene.connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset | {"commitOffset": "2"}).code == 0
    eventually(
        lambda: slave.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset).ext["offset"] == "2",
        what="the master's offset",
    )


def test_topics_that_the_master_deleted_go(shared: Shared) -> None:
    scene, slave = shared
    fill(scene.connection, 4, topic="Gone")
    eventually(lambda: slave.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Gone"}).code == 0, what="the topic")
    assert scene.connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
    eventually(lambda: slave.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Gone"}).code == 17, what="its end")
    fill(scene.connection, 8, topic="Gone")
    scene.fill(4)
    scene.caught_up(slave)
    eventually(
        lambda: slave.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Gone"}).code == 0, what="the new topic"
    )
    assert [record.queue_offset for record in records(pull(slave, "Gone").body)] == [0, 1]
    assert pull(slave, "Gone").body == pull(scene.connection, "Gone").body


def test_a_slave_turns_to_no_other_master_on_request(shared: Shared) -> None:
    _, slave = shared
    assert slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).code == 0
    assert slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": "127.0.0.1:1"}).code == 16
    assert slave.ask(RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "77"}).code == 0
    assert ha_client(slave)["masterFlushOffset"] == 77


def test_a_master_sends_slow_readers_to_the_slave(shared: Shared) -> None:
    """On the fast path and on the complete one: the ratio at 0 makes every reader but the last slow."""
    scene, _ = shared
    master = scene.connection
    assert pull(master, TOPIC).ext["suggestWhichBrokerId"] == "0"
    set_option(master, "slaveReadEnable", "true")
    set_option(master, "accessMessageInMemoryMaxRatio", "0")
    try:
        for ext in ({}, {"expressionType": "TAG", "unknown": "1"}):
            assert pull(master, TOPIC, **ext).ext["suggestWhichBrokerId"] == "1"
            for broker_id in (2, 1):
                read_slowly_at(master, broker_id)
                assert pull(master, TOPIC, **ext).ext["suggestWhichBrokerId"] == str(broker_id)
        set_option(master, "accessMessageInMemoryMaxRatio", "40")
        assert pull(master, TOPIC).ext["suggestWhichBrokerId"] == "0"
    finally:
        set_option(master, "slaveReadEnable", "false")
        set_option(master, "accessMessageInMemoryMaxRatio", "40")


def read_slowly_at(master: ClientSocket, broker_id: int) -> None:
    group = {"groupName": "CG", "consumeEnable": True, "whichBrokerWhenConsumeSlowly": broker_id}
    body = json.dumps(group).encode()
    assert master.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


def set_option(connection: ClientSocket, key: str, value: str) -> None:
    assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}\n".encode()).code == 0


def test_progress_files_are_saved(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        scene.fill(8)
        with scene.slave() as slave, slave.connect() as connection:
            scene.caught_up(connection)
            offset = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "1", "commitOffset": "2"}
            pull(scene.connection, TOPIC)
            assert scene.connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == 0
            text = b'"Followed@CG":{1:2}'
            eventually(
                lambda: text in connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body, what="the offset"
            )
            slave.kill()
        with scene.slave() as slave, slave.connect() as connection:
            assert text in connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body
            assert slave.stop() == 0
        assert '"Followed@CG"' in (scene.store / "config" / "consumerOffset.json").read_text()
        topics = json.loads((scene.store / "config" / "topics.json").read_text())["topicConfigTable"]
        assert TOPIC in topics
    finally:
        scene.close()
