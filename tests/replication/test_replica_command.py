"""`firearrow replica status`: the master and its slaves, in sync or not, and why."""

from pathlib import Path
from typing import Any

from bench.ports import free_port
from tests.doctor.running import doctor_of
from tests.replication.pairs import (
    SIZES,
    fill,
    ha_client,
    name_server,
    start_master,
    start_slave,
    words,
)
from tests.replication.raw_slave import RawSlave
from tests.replication.scene import Scene
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually


def shown(master: BrokerProcess, *words: str) -> Ran:
    return here("replica", "status", *words, name_server=name_server(master))


def slave_row(master: BrokerProcess) -> dict[str, Any]:
    rows = [row for row in shown(master).lines if row["role"] == "slave"]
    return rows[0] if rows else {}


def test_a_pair_of_ours(tmp_path: Path) -> None:
    port = free_port()
    with start_master(tmp_path / "master", haListenPort=str(port)) as master, master.connect() as client:
        alone = shown(master)
        assert [(row["role"], row["broker"], row["brokerId"]) for row in alone.rows] == [
            ("master", "pair", 0)
        ]
        fill(client, 20)
        with start_slave(tmp_path / "slave", name_server(master)) as slave:
            eventually(lambda: slave_row(master).get("lagMessages") == 0, what="the slave")
            master_row, row = shown(master, "--broker", "pair").rows
            assert row["address"] == "{}:{}".format(*slave.address)
            assert (row["brokerId"], row["inSync"], row["state"], row["reason"]) == (
                1,
                True,
                "following",
                None,
            )
            assert row["offset"] == master_row["offset"] > 0
            assert (row["lagBytes"], row["lagMs"], row["lagMessages"]) == (0, 0, 0)
            with RawSlave((master.address[0], port)) as raw:
                raw.say(0)
                eventually(lambda: len(shown(master).lines) == 3, what="the slave that no name server knows")
                third = shown(master).lines[2]
                assert third["brokerId"] is None
                assert third["address"] == "{}:{}".format(*raw.socket.getsockname())
                assert (third["offset"], third["lagBytes"]) == (0, master_row["offset"])
                assert third["inSync"] is False
        unknown = shown(master, "--broker", "other")
        assert (unknown.code, "known brokers: pair" in unknown.err) == (1, True)


def test_a_slave_that_has_diverged_is_trouble(scene: Scene, tmp_path: Path) -> None:
    scene.fill(20)
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        row = slave_row(scene.master)  # it copies from another port than the master's
        assert (row["inSync"], row["reason"]) == (False, "the master has no connection of it")
        assert row["lagBytes"] == 0
        [finding] = doctor_of(scene.master).of("replicas-out-of-sync")
        assert "the master has no connection of it, 0 B behind" in finding["found"]
        assert shown(scene.master).code == 1
        assert slave.stop() == 0
    (tmp_path / "other").mkdir()
    shorter = Scene(tmp_path / "other")
    shorter.store = scene.store
    try:
        shorter.fill(5)
        with shorter.slave() as slave, slave.connect() as connection:
            eventually(lambda: ha_client(connection)["state"] == "diverged", what="the state")
            row = slave_row(shorter.master)
            assert (row["state"], row["inSync"]) == ("diverged", False)
            assert row["reason"].startswith("our log ends at")
            assert shown(shorter.master).code == 1
            [finding] = doctor_of(shorter.master).of("replicas-stopped")
            assert (finding["severity"], finding["subject"]) == ("CRITICAL", "slave 1 of pair")
            assert "our log ends at" in finding["found"]
    finally:
        shorter.close()


def test_a_master_that_is_gone(tmp_path: Path) -> None:
    """The slave's own view counts, and another process's name server still knows it."""
    with BrokerProcess(tmp_path / "names", *words({"brokerName": "names"})) as names:
        port = free_port()
        master = BrokerProcess(
            tmp_path / "master", "--namesrv", name_server(names), *words(SIZES | {"haListenPort": str(port)})
        )
        with master.connect() as client:
            fill(client, 5)
        with start_slave(tmp_path / "slave", name_server(names)):
            eventually(lambda: slave_row(names).get("inSync") is True, what="that it follows")
            master.kill()
            eventually(lambda: slave_row(names).get("state") == "failed", what="the state")
            ran = shown(names, "--broker", "pair")
            assert ran.code == 1
            gone, row = ran.lines
            assert (gone["role"], gone["offset"]) == ("master", None)
            assert gone["reason"]
            assert row["inSync"] is None
