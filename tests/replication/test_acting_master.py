"""enableSlaveActingMaster with brokers of ours: the slave serves while the master is gone, which then takes over."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.acting_rig import (
    BOTH,
    LATER,
    OURS,
    PAIR,
    TOPIC,
    Rig,
    acts,
    commit,
    committed,
    fill,
    read,
    send_later,
)
from tests.replication.pairs import words
from tests.replication.raw_slave import Master
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import pull, send


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()


def pair(rig: Rig, **settings: str) -> None:
    """Both up, the slave in step, offset 4 committed and copied."""
    rig.start("master", **settings)
    rig.start("slave", **settings)
    with rig.connect("master") as master:
        eventually(lambda: rig.route("TBW102")[0] == BOTH, what="both registered")
        fill(master)
        commit(master, 4)
        rig.in_step()
        rig.copied(4)


@pytest.mark.parametrize("old", ["true", "false"])
def test_the_slave_serves_and_the_master_takes_over(rig: Rig, old: str) -> None:
    pair(rig, compatibleWithOldNameSrv=old)
    with rig.connect("master") as master:
        send_later(master)
        rig.in_step()
        commit(master, 5)
    rig.kill("master")
    gone = time.monotonic()
    rig.wait_route({"0": "slave"}, 4, 5)
    acts(rig)
    time.sleep(max(0.0, gone + 9 - time.monotonic()))
    with rig.connect("slave") as slave:
        assert read(slave, 0, LATER) == []
    rig.start("master", compatibleWithOldNameSrv=old)
    rig.wait_route(BOTH, 6)
    with rig.connect("master") as master, rig.connect("slave") as slave:
        assert committed(master) == 8
        eventually(lambda: read(master, 0, LATER) == [b"later"], what="the delayed message")
        assert send(master, TOPIC, b"on").code == 0
        commit(master, 11)
        rig.in_step()
        rig.copied(11)
        commit(slave, 10)  # as a consumer does that has not asked for the route since
        eventually(lambda: committed(master) == 10, what="the commit passed on")
        assert read(slave, 10) == [b"on"]
        time.sleep(1)
        assert read(master, 0, LATER) == [b"later"]


def status(rig: Rig, role: str) -> dict[str, object]:
    with rig.connect(role) as connection:
        found: dict[str, object] = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
    return found


def test_the_smallest_acts_and_is_told_at_once(rig: Rig) -> None:
    seldom = {"syncBrokerMemberGroupPeriod": "60000"}
    pair(rig, **seldom)
    rig.start("second", **seldom)
    eventually(lambda: rig.route("TBW102")[0] == BOTH | {"2": "second"}, what="three registered")
    rig.copied(4, "second")
    rig.kill("master")
    eventually(lambda: status(rig, "slave")["acting"] is True, 5, "that it acts")
    assert status(rig, "second")["acting"] is False
    rig.wait_route({"0": "slave", "2": "second"}, 4, 5)
    acts(rig)
    with rig.connect("second") as second:
        assert pull(second, TOPIC).code == 2
    rig.kill("slave")
    eventually(lambda: status(rig, "second")["acting"] is True, 5, "that the next one acts")
    rig.wait_route({"0": "second"}, 4, 5)
    with rig.connect("second") as second:
        commit(second, 9)
    rig.start("slave", **seldom)
    eventually(lambda: status(rig, "second")["acting"] is False, 5, "that a smaller one is there")
    rig.start("master", **seldom)
    rig.wait_route(BOTH | {"2": "second"}, 6)
    with rig.connect("master") as master:
        assert committed(master) == 9


def test_a_master_that_its_slave_does_not_know_stays_isolated(rig: Rig) -> None:
    """Until that slave has gone; it serves slaves and operators meanwhile."""
    pair(rig)
    rig.kill("master")
    rig.kill("slave")
    rig.start("slave", haAllowedAddresses="10.0.0.0/8")
    rig.wait_route({"0": "slave"}, 4)
    rig.start("master")
    eventually(
        lambda: "haAllowedAddresses=127.0.0.1" in str(status(rig, "master").get("isolated")),
        what="the reason",
    )
    assert rig.route()[0] == {"0": "slave"}
    with rig.connect("master") as master:
        assert send(master, TOPIC, b"no").code == 14
        assert pull(master, TOPIC).code == 14
        assert master.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        rig.kill("slave")
        rig.wait_route({"0": "master"}, 6)
        eventually(lambda: send(master, TOPIC, b"yes").code == 0, what="sends, which follow the registration")
        assert read(master, 10) == [b"yes"]
    assert "isolated" not in status(rig, "master")


def test_a_master_takes_over_from_a_slave_with_two_addresses(rig: Rig) -> None:
    """It is registered at one, and copies the log from the other, as with a translation of addresses."""
    rig.start("master")
    rig.start("slave", listen="0.0.0.0", brokerIP1="127.0.0.2")
    eventually(lambda: len(rig.route("TBW102")[0]) == 2, what="both registered")
    with rig.connect("master") as master:
        fill(master)
    rig.in_step()
    rig.kill("master")
    eventually(lambda: rig.route()[1] == 4, what="that the slave acts")
    rig.start("master")
    eventually(lambda: (len(rig.route()[0]), rig.route()[1]) == (2, 6), what="that the master is online")
    rig.in_step()


def test_nobody_else_turns_a_slave_around(rig: Rig) -> None:
    pair(rig)
    own = "{}:{}".format(*rig.running["master"].address)
    ext = {"masterAddress": "127.0.0.1:1", "masterHaAddress": "127.0.0.1:2"}
    with rig.connect("slave") as slave:
        answer = slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
        assert (answer.code, "another master" in str(answer.remark)) == (16, True)
        assert slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, ext | {"masterAddress": "x"}).code == 1
        assert slave.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).code == 0
        assert slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, {"minBrokerId": "1"}).code == 0
        time.sleep(1.5)
        assert status(rig, "slave")["acting"] is False
        assert status(rig, "slave")["master"] == own


def test_a_second_master_of_the_name_waits(rig: Rig, tmp_path: Path) -> None:
    pair(rig)
    with (
        BrokerProcess(
            tmp_path / "third",
            *("--namesrv", rig.names.name_server),
            *words(PAIR | OURS),
        ) as third,
        third.connect() as connection,
    ):

        def reason() -> str:
            found = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
            return str(found.get("isolated"))

        eventually(lambda: "is registered as the master of this name" in reason(), what="the reason")
        assert rig.route()[0] == BOTH


def test_sends_that_need_more_copies_are_not_stored(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "enableSlaveActingMaster": "true"}
    with Master(tmp_path / "store", **settings) as master, master.connect() as client:
        end = master.written()
        answer = send(client, "T", b"no")
        assert (answer.code, answer.remark) == (1, "in-sync replicas not enough")
        assert master.written() == end
        option = b"enableAutoInSyncReplicas=true"
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=option).code == 0
        assert send(client, "T", b"yes").code == 0
        option = b"minInSyncReplicas=2"
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=option).code == 0
        assert send(client, "T", b"no").code == 1
