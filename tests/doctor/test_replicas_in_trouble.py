"""Troubles of masters and slaves; slaves that do not follow are made in tests/replication."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow.client.admin_api.replicas import Replica
from firearrow.client.cli.doctor.facts import Facts
from tests.doctor.running import doctor_of, found_in
from tests.replication.pairs import fill, name_server, start_master, start_slave
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import send

MASTER = Replica(broker="b", broker_id=0, address="10.0.0.1:10911", says_master=True, offset=1 << 30)
SLAVE = Replica(
    broker="b",
    broker_id=1,
    address="10.0.0.2:10911",
    says_master=False,
    in_sync=True,
    state="following",
    offset=1 << 30,
    lag_bytes=0,
    lag_ms=0,
)
CHECKS = ("replicas-stopped", "replicas-out-of-sync", "two-masters")


def findings(slave: Replica) -> list[tuple[str, str]]:
    facts = Facts(1_000_000_000_000, replicas=[MASTER, slave])
    return [(check, finding.text) for check in CHECKS for finding in found_in(facts, check)]


def test_a_pair_in_sync_is_no_trouble() -> None:
    assert findings(SLAVE) == []
    assert findings(replace(SLAVE, state=None, lag_ms=None)) == []  # Apache's
    assert findings(replace(SLAVE, lag_bytes=1 << 20, lag_ms=900)) == []


@pytest.mark.parametrize("state", ["diverged", "behind the log", "corrupted"])
def test_a_slave_that_needs_somebody(state: str) -> None:
    stopped = replace(SLAVE, in_sync=False, state=state, reason="why")
    assert findings(stopped) == [("replicas-stopped", f"its state is {state!r}: why")]


@pytest.mark.parametrize(
    ("slave", "says"),
    [
        (replace(SLAVE, lag_bytes=65 << 20), "late, 65.0 MiB behind"),
        (replace(SLAVE, lag_bytes=10, lag_ms=31_000), "late, 10 B behind (31.0s)"),
        (replace(SLAVE, in_sync=False, lag_bytes=10), "not in sync, 10 B behind"),
        (replace(SLAVE, in_sync=False, state="failed", reason="lost", lag_bytes=None), "lost"),
        (replace(SLAVE, says_master=None, answers=False, reason="refused", lag_bytes=None), "refused"),
    ],
)
def test_a_slave_that_is_late(slave: Replica, says: str) -> None:
    assert findings(slave) == [("replicas-out-of-sync", f"10.0.0.2:10911: {says}")]


def test_a_second_master() -> None:
    [(check, found)] = findings(replace(SLAVE, says_master=True, in_sync=None, state=None))
    assert check == "two-masters"
    assert "brokerId=1" in found


def test_two_masters_of_one_epoch() -> None:
    master = replace(MASTER, other_master="10.0.0.3:10911")
    facts = Facts(1_000_000_000_000, replicas=[master, SLAVE])
    [finding] = found_in(facts, "two-masters")
    assert finding.text == "10.0.0.1:10911 and 10.0.0.3:10911 are masters of the same epoch"
    assert master.is_trouble


def test_a_sync_master_that_refuses(tmp_path: Path) -> None:
    role = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
    words = [
        word
        for each in (role | {"haListenPort": str(free_port())}).items()
        for word in ("--set", "=".join(each))
    ]
    with BrokerProcess(tmp_path / "store", *words) as broker, broker.connect() as client:
        assert send(client, "T", b"m").code != 0
        said = doctor_of(broker)
    assert "1 of 2 copies are in sync" in said.of("sends-refused")[0]["found"]
    assert said.of("replicas-missing")
    assert said.of("replicas-too-few") == [], "it is the same trouble"


def test_a_pair_is_in_order_until_its_slave_dies(tmp_path: Path) -> None:
    """The slave is missed though the name server forgot it at once; it is reported once."""
    port = str(free_port())
    sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "haListenPort": port}
    with (
        start_master(tmp_path / "master", **sync) as master,
        start_slave(tmp_path / "slave", name_server(master)) as slave,
        master.connect() as client,
    ):
        eventually(lambda: not doctor_of(master).findings)
        fill(client, 4)
        assert [each["check"] for each in doctor_of(master).findings] == ["topics-without-groups"]
        time.sleep(2.1)  # until then it is not expected
        slave.kill()
        said = eventually(lambda: doctor_of(master) if doctor_of(master).of("replicas-missing") else None)
    assert {each["check"] for each in said.findings if each["severity"] != "NOTE"} == {
        "replicas-missing",
        "replicas-too-few",
    }


def test_a_slave_without_its_master(tmp_path: Path) -> None:
    """Only a name server and the slave are left."""
    with (
        BrokerProcess(tmp_path / "names", "--set", "brokerName=other") as names,
        start_slave(tmp_path / "slave", name_server(names), f"127.0.0.1:{free_port()}"),
    ):
        said = eventually(lambda: doctor_of(names) if doctor_of(names).of("masters-missing") else None)
    assert said.of("masters-missing")[0]["subject"] == "broker pair"
    assert said.of("absent-brokers") == []


@pytest.mark.parametrize("copies", [1, 2])
def test_a_sync_master_that_waits_for_nobody(tmp_path: Path, copies: int) -> None:
    settings = ("brokerRole=SYNC_MASTER", f"haListenPort={free_port()}", f"inSyncReplicas={copies}")
    words = [word for pair in settings for word in ("--set", pair)]
    with BrokerProcess(tmp_path / "store", *words) as broker:
        said = doctor_of(broker)
    assert len(said.of("sync-masters-alone")) == (copies == 1)
    assert len(said.of("replicas-too-few")) == (copies == 2)
