"""Slaves that were in sync, or have to be there, are reported until an operator removes them: by `replica status`,
`status`, `doctor`, /readyz and metrics."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.doctor.running import doctor
from tests.metrics.scrapes import WatchedBroker, value
from tests.replication.pairs import SIZES, fill, name_server, own_ports, paused, words
from tests.replication.promoted_pair import address_of, is_master
from tests.replication.raw_slave import RawSlave
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually
from tests.support.requests import send

NAME = {"brokerName": "b", "haHousekeepingInterval": "2000"}
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2", "slaveTimeout": "1000"}
CHECKS = (
    "replicas-missing",
    "masters-missing",
    "sends-refused",
    "replicas-out-of-sync",
    "unreachable-brokers",
)


class Cluster:
    """A name server, and brokers of one name, each at its own port over restarts."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self._settings = folder, settings
        self.ha_port = free_port()
        self._ports: dict[str, tuple[str, ...]] = {}
        self.names = BrokerProcess(folder / "names", *words({"brokerName": "names"}))
        self.running: dict[str, BrokerProcess] = {}

    def start(self, name: str, **settings: str) -> BrokerProcess:
        ports = self._ports.setdefault(name, own_ports()[:2])
        own = SIZES | NAME | self._settings | settings
        words_of = (*ports, "--namesrv", name_server(self.names), *words(own))
        broker = WatchedBroker(self.folder / name, *words_of)
        self.running[name] = broker
        return broker

    def master(self) -> WatchedBroker:
        broker = self.start("master", haListenPort=str(self.ha_port))
        assert isinstance(broker, WatchedBroker)
        return broker

    def slave(self, number: int = 1) -> BrokerProcess:
        role = {"brokerRole": "SLAVE", "brokerId": str(number), "haListenPort": str(free_port())}
        return self.start(f"slave{number}", **role)

    def close(self) -> None:
        for broker in (*self.running.values(), self.names):
            broker.kill()

    # ---- what operators see ----

    def status(self) -> Ran:
        return here("replica", "status", "--broker", "b", name_server=name_server(self.names))

    def rows(self) -> dict[str, tuple[Any, Any]]:
        """Address of each slave → whether it is in sync, and its state."""
        lines = self.status().lines
        return {row["address"]: (row["inSync"], row["state"]) for row in lines if row["role"] == "slave"}

    def findings(self) -> set[str]:
        said = doctor("-n", name_server(self.names), "--stuck-after", "1s", "--watch", "100ms")
        return {each["check"] for each in said.findings if each["check"] in CHECKS}

    def trouble(self) -> str:
        ran = here("status", name_server=name_server(self.names))
        (row,) = [row for row in ran.lines if row["broker"] == "b"]
        assert ran.code == (1 if row["trouble"] else 0)
        return "; ".join(row["trouble"])

    def forget(self, *which: str) -> Ran:
        return here(
            "replica", "forget", *which, "--broker", "b", "--yes", name_server=name_server(self.names)
        )

    def well(self, count: int) -> None:
        """Wait until that many slaves are in sync; then everything says so."""
        eventually(
            lambda: list(self.rows().values()) == [(True, "following")] * count, what=f"{count} in sync"
        )
        eventually(lambda: max(map(expected, self.running.values())) == count, what="that they are expected")
        assert self.status().code == 0
        assert self.findings() == set()
        assert self.trouble() == ""


def expected(broker: BrokerProcess) -> int:
    """How many slaves a master expects, also once they have left; 0: it is none, or dead."""
    file = broker.store / "config" / "expectedReplicas.json"
    try:
        with broker.connect() as client:
            found = is_master(client) and file.exists()
    except OSError:
        return 0
    return len(json.loads(file.read_text())["replicas"]) if found else 0


def in_sync(master: WatchedBroker) -> dict[str, float]:
    """By the label `replica`."""
    _, series = master.scrape().get("firearrow_replica_in_sync", ("", {}))
    return {dict(labels)["replica"]: number for labels, number in series.items()}


def gauges(master: WatchedBroker) -> dict[str, float]:
    names = ("replicas_expected", "replicas_missing", "sends_refused", "ready")
    found = master.scrape()
    return {name: value(found, f"firearrow_{name}") for name in names}


def refuses(cluster: Cluster, master: WatchedBroker, missing: str) -> None:
    """Sends, and all that reports it."""
    with master.connect() as client:
        assert send(client, "Followed", b"no").code == 1
    code, _, body = master.get("/readyz")
    text = body.decode()
    assert (code, "sends are refused: 1 of 2 copies are in sync (minInSyncReplicas)" in text) == (
        503,
        True,
    ), text
    assert missing in text
    wanted = {"replicas_expected": 1, "replicas_missing": 1, "sends_refused": 1, "ready": 0}
    assert gauges(master) == wanted
    ran = cluster.status()
    assert ran.code == 1
    assert "sends are refused" in ran.lines[0]["reason"]
    assert {"replicas-missing", "sends-refused"} <= cluster.findings()
    trouble = cluster.trouble()
    assert "sends are refused" in trouble
    assert f"slaves are missing: {missing}" in trouble


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def sync(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, **SYNC)
    try:
        yield cluster
    finally:
        cluster.close()


def test_a_master_that_refuses_sends_reports_it_and_the_slave_that_it_misses(sync: Cluster) -> None:
    """Never there, killed, the master started again meanwhile, back, stopped cleanly, forgotten."""
    master = sync.master()
    refuses(sync, master, "1 that never joined")
    assert sync.rows() == {"never-joined": (False, "missing")}
    slave = sync.slave()
    place = address_of(slave)
    sync.well(1)
    assert in_sync(master) == {"127.0.0.1": 1}
    assert master.get("/readyz")[0] == 200
    with master.connect() as client:
        fill(client, 5)
    sync.well(1)
    slave.kill()
    eventually(lambda: sync.rows() == {place: (False, "missing")}, what="that it is missing")
    assert in_sync(master) == {"127.0.0.1": 0}
    refuses(sync, master, place)
    master.kill()
    master = sync.master()
    eventually(lambda: sync.rows() == {place: (False, "missing")}, what="that it is missing")
    assert in_sync(master) == {"127.0.0.1": 0}
    refuses(sync, master, place)
    slave = sync.slave()
    sync.well(1)
    assert slave.stop() == 0
    eventually(lambda: sync.rows() == {place: (False, "missing")}, what="that it is missing")
    refuses(sync, master, place)
    (row,) = (row for row in sync.status().lines if row["role"] == "slave")
    assert row["brokerId"] == 1
    assert row["reason"].startswith("it has not been connected since 20")
    assert "no master misses a slave of this address" in sync.forget("10.0.0.1:1").err
    assert sync.forget(place).code == 0
    assert sync.rows() == {"never-joined": (False, "missing")}  # inSyncReplicas asks for one
    assert "change these" in sync.forget("never-joined").err
    assert "change these" in sync.forget("--all").err


def test_a_frozen_slave_is_not_in_sync(sync: Cluster) -> None:
    master, slave = sync.master(), sync.slave()
    sync.well(1)
    with paused(slave.process):
        with master.connect() as client:
            assert send(client, "Followed", b"late").code == 12
        assert in_sync(master) == {"127.0.0.1": 0}
        assert master.get("/readyz")[0] == 503
        assert "sends-refused" in sync.findings()
        eventually(lambda: gauges(master)["replicas_missing"] == 1, what="that its connection is closed")
    sync.well(1)


def test_a_slave_of_an_async_master_is_in_sync_by_time(cluster: Cluster) -> None:
    """Not by bytes: it lacks one message."""
    master, slave = cluster.master(), cluster.slave()
    with master.connect() as client:
        fill(client, 5)
    cluster.well(1)
    with master.connect() as client, paused(slave.process):
        assert send(client, "Followed", b"late").code == 0
        eventually(lambda: in_sync(master) == {"127.0.0.1": 0}, 8, "that it is late")
        assert master.get("/readyz")[0] == 200
        assert "not in sync" in cluster.trouble() or "missing" in cluster.trouble()


def test_one_of_two_slaves_is_dead(cluster: Cluster) -> None:
    """Its series stays, and its place is that of a slave with its brokerId, or nobody's once it is forgotten."""
    master, first, second = cluster.master(), cluster.slave(1), cluster.slave(2)
    cluster.well(2)
    places = {address_of(each): 1.0 for each in (first, second)}
    assert in_sync(master) == places
    first.kill()
    dead = address_of(first)
    eventually(lambda: in_sync(master) == places | {dead: 0.0}, what="that it is missing")
    assert (gauges(master)["replicas_expected"], gauges(master)["replicas_missing"]) == (2, 1)
    eventually(lambda: cluster.rows()[dead] == (False, "missing"), what="the row")
    assert cluster.findings() == {"replicas-missing"}
    assert dead in cluster.trouble()
    assert master.get("/readyz")[0] == 200
    shutil.rmtree(cluster.folder / "slave1")
    cluster.slave(1)
    cluster.well(2)
    second.kill()
    gone = address_of(second)
    eventually(lambda: cluster.rows().get(gone) == (False, "missing"), what="the row")
    cluster.running.pop("slave1").kill()
    eventually(lambda: [state for _, state in cluster.rows().values()] == ["missing"] * 2, what="the rows")
    assert "name one slave" in cluster.forget().err
    assert cluster.forget("--all").code == 0
    cluster.well(0)
    assert "no master misses a slave" in cluster.forget("--all").err
    assert in_sync(master) == {}


def test_slaves_on_apaches_wire_are_known_by_their_host(cluster: Cluster) -> None:
    master = cluster.master()
    with master.connect() as client:
        fill(client, 5)
    written = int(value(master.scrape(), "firearrow_log_end_bytes"))
    for _ in range(3):  # which only visits is expected by no one
        with RawSlave(("127.0.0.1", cluster.ha_port)) as visitor:
            visitor.file_bytes = int(SIZES["mappedFileSizeCommitLog"])
            visitor.say(0)
            visitor.copy(written)
            eventually(lambda: in_sync(master) == {"127.0.0.1": 1}, what="that it is in sync")
        eventually(lambda: in_sync(master) == {}, what="that it has left")
    assert expected(master) == 0
    with (
        RawSlave(("127.0.0.1", cluster.ha_port)) as first,
        RawSlave(("127.0.0.1", cluster.ha_port)) as second,
    ):
        for each in (first, second):
            each.file_bytes = int(SIZES["mappedFileSizeCommitLog"])
            each.say(0)
            each.copy(written)
        eventually(lambda: in_sync(master) == {"127.0.0.1": 1, "127.0.0.1#2": 1}, what="both")
        eventually(lambda: expected(master) == 2, what="that both are expected")
    eventually(
        lambda: cluster.rows() == dict.fromkeys(("127.0.0.1", "127.0.0.1#2"), (False, "missing")), what="both"
    )
    assert in_sync(master) == {"127.0.0.1": 0, "127.0.0.1#2": 0}
    with RawSlave(("127.0.0.1", cluster.ha_port)) as again:
        again.say(written)
        eventually(lambda: in_sync(master) == {"127.0.0.1": 1, "127.0.0.1#2": 0}, what="one of them")
        assert cluster.forget("127.0.0.1#2").code == 0
        assert in_sync(master) == {"127.0.0.1": 1}


def test_a_slave_on_apaches_wire_that_connects_again_is_one(cluster: Cluster) -> None:
    """Its first connection died without a word."""
    master = cluster.master()
    with master.connect() as client:
        fill(client, 5)
    written = int(value(master.scrape(), "firearrow_log_end_bytes"))
    with RawSlave(("127.0.0.1", cluster.ha_port)) as first:
        first.say(written)
        eventually(lambda: in_sync(master) == {"127.0.0.1": 1}, what="the slave")

        def known() -> bool:
            if expected(master) == 1:
                return True
            first.say(
                written
            )  # which the master reads before the next look, and so before it sees the other one
            return False

        eventually(known, what="that it is expected")
        with RawSlave(("127.0.0.1", cluster.ha_port)) as again:

            def seen() -> dict[str, float]:
                again.say(written)
                return in_sync(master)

            eventually(lambda: seen() == {"127.0.0.1": 1, "127.0.0.1#2": 1}, what="both connections")
            eventually(lambda: seen() == {"127.0.0.1": 1}, what="that the first one is closed")


def test_a_dead_master_is_critical_and_expected_back(cluster: Cluster) -> None:
    """Before the promotion of a slave it is missing as the master, then as a slave; so is the other slave."""
    master, first, second = cluster.master(), cluster.slave(1), cluster.slave(2)
    with master.connect() as client:
        fill(client, 5)
    cluster.well(2)
    known = cluster.folder / "slave1" / "config" / "expectedReplicas.json"
    eventually(
        lambda: address_of(second).rpartition(":")[2] in known.read_text(), 10, "that they know each other"
    )
    master.kill()
    second.kill()
    eventually(lambda: "masters-missing" in cluster.findings(), what="the finding")
    assert "its master is not there; slaves: 1 at" in cluster.trouble()
    assert cluster.status().code == 1
    assert here("replica", "promote", address_of(first), "--yes").code == 0
    places = {address_of(each): (False, "missing") for each in (master, second)}
    eventually(lambda: cluster.rows() == places, what="the old master and the other slave")
    assert cluster.findings() == {"replicas-missing"}
    cluster.start("master", brokerRole="SLAVE", brokerId="3", haListenPort=str(cluster.ha_port))
    eventually(
        lambda: cluster.rows()[address_of(master)] == (True, "following"), what="the old master as a slave"
    )
    assert cluster.forget(address_of(second)).code == 0
    cluster.well(1)
