"""FENCE_BROKER: a master stops writing, and what waits for an answer gets none that says stored."""

import json
from pathlib import Path

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.registration import BrokerAnnouncement, BrokerIdentity
from firearrow.broker.tables.topics import TopicConfig
from tests.replication.pairs import TOPIC, end_of, start_master, wait_for
from tests.replication.promoted_pair import is_master, state_of
from tests.replication.raw_slave import Master, until
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import send, send_ext

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 60_000}


def fence(connection: ClientSocket, step: str, **ext: str) -> RemotingCommand:
    return connection.ask(RequestCode.FENCE_BROKER, {"step": step, **ext})


def test_what_waits_for_slaves_is_refused(tmp_path: Path) -> None:
    with Master(tmp_path / "store", **SYNC) as master, master.connect() as client, master.slave() as slave:
        slave.say(0)
        until(lambda: master.status()["inSyncSlaveNums"] == 1)
        waiting = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"body")
        until(lambda: master.written() > 0)
        with master.connect() as operator:
            assert fence(operator, "fence", epoch="1").code == 0
        answer = client.answer_to(waiting)
        assert (answer.code, "is fenced" in str(answer.remark)) == (14, True)


def test_a_master_that_hears_no_more_is_the_master_again(tmp_path: Path) -> None:
    with start_master(tmp_path / "store", haListenPort=str(free_port())) as master:
        with master.connect() as client:
            assert send(client, TOPIC, b"before").code == 0
            ready = json.loads(fence(client, "prepare").body)
            assert ready == {"epoch": 0, "end": end_of(client)}
            assert send(client, TOPIC, b"never").code == 14
            commit = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 14
            assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "New"}).code == 14
            for step, ext in (
                ("fence", {"epoch": "1", "end": "1"}),
                ("fence", {"epoch": "0"}),
                ("sleep", {}),
            ):
                assert fence(client, step, **ext).code in (604, 29)
            assert fence(client, "cancel").code == 0
        wait_for(lambda: takes_writes(master), "that it takes writes")
        with master.connect() as client:
            late = {"epoch": "1", "end": str(end_of(client))}
            assert fence(client, "fence", **late).code == 604  # it was not prepared again
            assert is_master(client)


def takes_writes(broker: BrokerProcess) -> bool:
    try:
        with broker.connect() as client:
            return send(client, TOPIC, b"after").code == 0
    except OSError:
        return False


def test_the_name_server_in_its_process_tells_a_master_of_a_newer_one(tmp_path: Path) -> None:
    """Which is refused until the master is fenced."""
    newer = BrokerIdentity("DefaultCluster", "pair", "10.0.0.9", 10911, 0)
    with start_master(tmp_path / "store", haListenPort=str(free_port())) as master:
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=0).code == 1
        assert takes_writes(master)
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=2).code == 1
        wait_for(lambda: state_of(master) == "fenced", "that it is fenced")
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=2).code == 0
        assert not takes_writes(master)


def register(names: ClientSocket, identity: BrokerIdentity, state_version: int) -> RemotingCommand:
    version = DataVersion(1, state_version, 1)
    topics = [TopicConfig(name, 4, 4, 6) for name in (TOPIC, "Other")]
    announcement = BrokerAnnouncement.of(identity, version, topics, 6)
    [body] = announcement.bodies()
    return names.ask(RequestCode.REGISTER_BROKER, announcement.ext("10.0.0.9", body), body)
