"""The role of a store changes by its options: delays and timers go on, and each message comes once."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.interop.peers import FireArrow
from tests.replication.pairs import SIZES, end_of, words
from tests.replication.scene import Scene
from tests.replication.taking_over import LEVELS, MESSAGES, each_comes_once, fill, in_the_middle
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    with FireArrow(tmp_path / "names", {"brokerName": "names", "brokerClusterName": "Names"}) as started:
        yield started.name_server


def master_on(store: Path, names: str) -> BrokerProcess:
    settings = SIZES | LEVELS | {"haListenPort": str(free_port()), "timerPrecisionMs": "100"}
    return BrokerProcess(store, "--namesrv", names, *words(settings))


def slave_on(store: Path, names: str) -> BrokerProcess:
    role = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true", "timerPrecisionMs": "100"}
    return BrokerProcess(store, "--namesrv", names, *words(SIZES | LEVELS | role))


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_slave_started_as_master_delivers_what_is_left(tmp_path: Path, names: str, is_killed: bool) -> None:
    with master_on(tmp_path / "a", names) as master, slave_on(tmp_path / "b", names) as slave:
        with master.connect() as sender, slave.connect() as reader:
            fill(sender, 0, timers=True)
            in_the_middle(sender, reader, 0)
        master.kill()
        if is_killed:
            slave.kill()
        else:
            assert slave.stop() == 0
    for _ in range(2):
        with master_on(tmp_path / "b", names) as promoted:
            each_comes_once(promoted, MESSAGES)
            promoted.kill()


@pytest.mark.parametrize("is_promoted", [True, False])
def test_topics_that_the_slave_had_not_heard_of_are_found_in_its_queues(
    tmp_path: Path, names: str, is_promoted: bool
) -> None:
    """The master had created them a moment before it died, and answered what was sent to them."""
    topics = tmp_path / "b" / "config" / "topics.json"
    with master_on(tmp_path / "a", names) as master, slave_on(tmp_path / "b", names) as slave:
        with master.connect() as client, slave.connect() as reader:
            assert send(client, "Known", b"first").code == 0
            known = {"topic": "Known"}
            eventually(
                lambda: reader.ask(RequestCode.GET_TOPIC_CONFIG, known).code == 0, what="the first topic"
            )
            eventually(lambda: "Known" in topics.read_text(), what="that it is saved")
            before = topics.read_bytes()
            for number in range(6):
                assert send(client, "New", b"%d" % number, queue_id=number % 3).code == 0
            eventually(lambda: end_of(reader) == end_of(client), what="the master's end")
        master.kill()
        assert slave.stop() == 0
    for path in (topics, topics.with_name("topics.json.bak")):
        path.write_bytes(before)
    if is_promoted:
        here("promote", str(tmp_path / "b"), "--yes").succeeded()
    with master_on(tmp_path / "b", names) as promoted, promoted.connect() as client:
        found = [[record.body for record in read_queue(client, "New", queue)] for queue in range(3)]
        assert found == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]
        assert send(client, "New", b"7", queue_id=0).ext["queueOffset"] == "2"


def test_the_roles_are_exchanged_and_exchanged_again(tmp_path: Path, names: str) -> None:
    """The wheel of the former master is the one from before, so it is not trusted when it is the master again."""
    stores = [tmp_path / "a", tmp_path / "b"]
    for number in range(3):
        with master_on(stores[0], names) as master, slave_on(stores[1], names) as slave:
            with master.connect() as sender, slave.connect() as reader:
                fill(sender, number * MESSAGES, timers=True)
                in_the_middle(sender, reader, number * MESSAGES)
            assert master.stop() == 0
            time.sleep(0.2)
            assert slave.stop() == 0
        stores.reverse()
    with master_on(stores[0], names) as master:
        each_comes_once(master, 3 * MESSAGES)
        assert "second time" not in master.log.read_text()
    assert not list(tmp_path.rglob("*.damaged-*"))


def test_progress_waits_for_the_log_that_it_is_of(scene: Scene) -> None:
    def commit(offset: int) -> None:
        fields = {"consumerGroup": "G", "topic": "Followed", "queueId": "0", "commitOffset": str(offset)}
        assert scene.connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

    scene.fill(40)
    config = b'{"groupName":"G","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
    assert scene.connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config).code == 0
    commit(3)
    with scene.slave() as slave, slave.connect() as connection:

        def copied() -> bytes:
            return connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body

        eventually(lambda: b'"Followed@G":{0:3}' in copied(), what="the offset")
        scene.limit = end_of(connection)
        scene.fill(40)
        commit(15)
        time.sleep(2.5)
        assert b'"Followed@G":{0:3}' in copied()
        scene.limit = None
        eventually(lambda: b'"Followed@G":{0:15}' in copied(), what="the offset after it")
