"""Logs that a slave must not follow: found before a byte is taken, and reported by 907, the status and the log."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import (
    SEGMENT,
    digests,
    end_of,
    ha_client,
    name_server,
    start_master,
    start_slave,
    words,
)
from tests.replication.scene import Scene
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually


def followed(scene: Scene) -> int:
    """Let the slave follow once; returns where its log ends."""
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert slave.stop() == 0
    scene.sender.asked.clear()
    return scene.end()


def refused(slave: BrokerProcess, connection: ClientSocket, state: str, says: str) -> None:
    eventually(lambda: ha_client(connection)["state"] == state, what=f"the state {state}")
    assert says in str(ha_client(connection)["reason"])
    status = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
    assert status["state"] == state
    assert says in status["reason"]
    assert says in slave.log.read_text()


def other(scene: Scene, folder: Path, count: int) -> Scene:
    """Another master with that many messages, on which the slave's folder is set."""
    folder.mkdir()
    found = Scene(folder)
    found.store = scene.store
    found.fill(count)
    return found


def test_a_slave_that_is_ahead_takes_nothing(scene: Scene, tmp_path: Path) -> None:
    scene.fill(60)
    end = followed(scene)
    shorter = other(scene, tmp_path / "other", 20)
    try:
        assert shorter.end() < end
        with shorter.slave() as slave, slave.connect() as connection:
            refused(slave, connection, "diverged", f"our log ends at {end}")
            shorter.fill(100)
            time.sleep(1.5)
            assert ha_client(connection)["state"] == "diverged"
            assert end_of(connection) == end
            assert shorter.sender.asked == []
        assert digests(scene.store, end) == digests(scene.master.store, end)
    finally:
        shorter.close()


def test_a_log_of_another_master_is_found_by_the_last_record(scene: Scene, tmp_path: Path) -> None:
    scene.fill(40)
    end = followed(scene)
    longer = other(scene, tmp_path / "other", 90)
    try:
        with longer.slave() as slave, slave.connect() as connection:
            refused(slave, connection, "diverged", "our last record")
            assert end_of(connection) == end
            assert longer.sender.asked == []
    finally:
        longer.close()


def shortened(scene: Scene) -> int:
    """Let the master delete its oldest files, as they expire; returns where its log begins then."""
    past, folder = time.time() - 1_000_000, scene.master.store / "commitlog"
    for path in folder.iterdir():
        os.utime(path, (past, past))
    assert scene.connection.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    end = end_of(scene.connection)
    last = end - end % SEGMENT
    eventually(
        lambda: min(int(path.name) for path in folder.iterdir()) == last,
        what="the deletion of all but the last",
    )
    return last


def test_a_slave_that_was_away_too_long_is_told(scene: Scene) -> None:
    scene.fill(300)
    followed(scene)
    scene.fill(2500)
    begins = shortened(scene)
    with scene.slave() as slave, slave.connect() as connection:
        refused(slave, connection, "behind the log", f"the master's begins at {begins}")
        assert scene.sender.asked == []


def test_a_fresh_slave_of_a_shortened_log_begins_at_its_first_file(scene: Scene) -> None:
    scene.fill(2500)
    begins = shortened(scene)
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert scene.sender.asked == [begins]
        scene.equal()
        assert slave.stop() == 0
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert "ERROR" not in slave.log.read_text()


def test_a_fresh_slave_that_got_nothing_begins_later_if_files_expire_meanwhile(scene: Scene) -> None:
    """Its first connection is closed before a byte comes, as by a master that does not know it."""
    scene.fill(2500)
    assert shortened(scene) > 0
    scene.sender.cuts = [0] * 1000
    with scene.slave() as slave, slave.connect() as connection:
        eventually(lambda: len(scene.sender.asked) > 1, what="that it asks")
        scene.fill(2500)
        eventually(lambda: shortened(scene) > scene.sender.asked[0], what="the deletion of what it asked for")
        begins = shortened(scene)
        scene.sender.cuts.clear()
        scene.caught_up(connection)
        assert scene.sender.asked[-1] == begins
        scene.equal()


def test_files_of_another_size_are_refused(scene: Scene) -> None:
    scene.fill(2500)
    with scene.slave(mappedFileSizeCommitLog="524288") as slave, slave.connect() as connection:
        eventually(lambda: ha_client(connection)["state"] in ("failed", "corrupted"), what="the state")
        assert end_of(connection) < 2 * 262144


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "--namesrv"),
        (
            {"namesrvAddr": "127.0.0.1:1", "haMasterAddress": "there"},
            "haMasterAddress must be host:port, not 'there'",
        ),
    ],
)
def test_a_slave_without_a_way_to_its_master_does_not_start(
    tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "firearrow.broker",
            "--store",
            str(tmp_path / "s"),
            "--listen",
            "127.0.0.1:0",
            "--namesrv-listen",
            "127.0.0.1:0",
            *words({"brokerRole": "SLAVE", "brokerId": "1"} | settings),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 3
    assert says in ran.stderr


def test_a_slave_waits_for_a_master_that_comes_later(scene: Scene, tmp_path: Path) -> None:
    scene.fill(20)
    with start_slave(tmp_path / "early", name_server(scene.master), brokerName="later") as slave:
        with slave.connect() as connection:
            assert ha_client(connection)["state"] == "no master"
            assert connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": "x", "queueId": "0"}).code == 0
        assert slave.stop() == 0


@pytest.mark.parametrize("secret", ["", "a secret of both brokers"])
def test_a_master_that_does_not_replicate(tmp_path: Path, secret: str) -> None:
    with (
        start_master(tmp_path / "master") as master,
        start_slave(tmp_path / "slave", name_server(master), haSecret=secret) as slave,
        slave.connect() as connection,
    ):
        eventually(
            lambda: "does not replicate" in str(ha_client(connection).get("reason")), what="the reason"
        )
