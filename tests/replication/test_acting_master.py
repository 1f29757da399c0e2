"""enableSlaveActingMaster with brokers of ours: the slave serves while the master is gone, which then takes over."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replication.acting_rig import (
    LATER,
    TOPIC,
    Rig,
    acts,
    commit,
    committed,
    fill,
    read,
    send_later,
)
from tests.replication.pairs import wait_for
from tests.support.requests import pull, send

BOTH = {"0": "master", "1": "slave"}


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
        wait_for(lambda: rig.route("TBW102")[0] == BOTH, "both registered")
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
        wait_for(lambda: read(master, 0, LATER) == [b"later"], "the delayed message")
        assert send(master, TOPIC, b"on").code == 0
        commit(master, 11)
        rig.in_step()
        rig.copied(11)
        wait_for(lambda: pull(slave, TOPIC).code == 2, "a slave that does not act")
        time.sleep(1)
        assert read(master, 0, LATER) == [b"later"]
