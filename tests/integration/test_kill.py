"""`kill -9`: a few rounds under load, and critical moments."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.integration.kill_rounds import KillRounds
from tests.support.broker_process import BrokerProcess
from tests.support.requests import pull, read_queue, send


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.long)])
def test_kill_under_load(tmp_path: Path, flush: str) -> None:
    rounds = KillRounds(tmp_path / "store", flush)
    rounds.run()
    rounds.run(tear=True)
    rounds.run()
    assert len(rounds.acknowledged) > 600
    assert len(rounds.seen) > 50


def test_a_topic_created_by_a_send_survives_the_kill(tmp_path: Path) -> None:
    """The message was acknowledged, so it can be pulled, however new its topic was."""
    for number in range(3):
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
            assert send(connection, f"Fresh{number}", b"acknowledged").code == 0
            broker.kill()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        for number in range(3):
            assert [record.body for record in read_queue(connection, f"Fresh{number}", 0)] == [
                b"acknowledged"
            ]


def test_acknowledged_admin_changes_survive_the_kill(tmp_path: Path) -> None:
    topic = {
        "topic": "Made",
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true",
    }
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Gone", b"old").code == 0
        assert connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == 0
        broker.kill()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        made = connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"})
        assert (b'"readQueueNums":3' in made.body, b'"order":true' in made.body) == (True, True)
        gone = connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Gone"})
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST


def test_kills_in_quick_succession_do_not_add_up(tmp_path: Path) -> None:
    """A broker that is killed repeatedly, before it saves its tables, journals only what is new."""
    offsets = {"consumerGroup": "CG", "topic": "T", "queueId": "0"}
    for life in range(4):
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
            assert send(connection, "T", b"old").code == 0
            pull(connection, "T")
            for step in range(1, 200):
                commit = offsets | {"commitOffset": str(step % (life + 2))}
                assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
            broker.kill()
        journal = [path.read_bytes().rstrip(b"\x00") for path in (tmp_path / "store" / "journal").iterdir()]
        assert sum(map(len, journal)) < 200 * 40 + 1000
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        kept = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, offsets)
        assert kept.ext["offset"] == str(199 % 5)
