"""enableSlaveActingMaster with haSecret: a master that comes back is joined before it is online."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.acting_rig import BOTH, TOPIC, Rig, acts, commit, committed, fill, read
from tests.replication.pairs import SECRET, ha_client
from tests.support.eventually import eventually
from tests.support.requests import send, topic_ext

WITH_SECRET = {"haSecret": SECRET}
THREE = BOTH | {"2": "second"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()


def status(rig: Rig, role: str) -> dict[str, object]:
    with rig.connect(role) as connection:
        found: dict[str, object] = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
    return found


def start(rig: Rig, *roles: str, **settings: str) -> None:
    for role in roles:
        rig.start(role, **WITH_SECRET | settings)


def test_a_master_with_a_secret_comes_back(rig: Rig) -> None:
    """Also with two slaves, after a restart of the slave that acts, and after one of all brokers at once."""
    start(rig, "master", "slave", "second")
    with rig.connect("master") as master:
        eventually(lambda: rig.route("TBW102")[0] == THREE, what="three registered")
        fill(master)
        commit(master, 4)
    rig.in_step()
    rig.copied(4)
    rig.copied(4, "second")
    rig.kill("master")
    rig.wait_route({"0": "slave", "2": "second"}, 4, 5)
    acts(rig)
    rig.running["slave"].stop()  # type: ignore[union-attr]
    start(rig, "slave")
    rig.wait_route({"0": "slave", "2": "second"}, 4)
    start(rig, "master")
    rig.wait_route(THREE, 6)
    with rig.connect("master") as master:
        assert committed(master) == 8
        assert "isolated" not in status(rig, "master")
        master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("After", 1))
        assert send(master, TOPIC, b"on").code == 0
        commit(master, 11)
        rig.in_step()
        for role in ("slave", "second"):  # by the journal and the tables of the pair
            rig.copied(11, role)
            with rig.connect(role) as slave:
                eventually(
                    lambda slave=slave: slave.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "After"}).code == 0,
                    what="the topic",
                )
            assert status(rig, role)["pair"] is True
    for role in list(rig.running):
        rig.kill(role)
    start(rig, "slave", "second", "master")
    rig.wait_route(THREE, 6)
    with rig.connect("master") as master:
        assert committed(master) == 11
        assert read(master, 10) == [b"on"]


def test_a_master_with_another_secret_reports_it(rig: Rig) -> None:
    start(rig, "master", "slave")
    with rig.connect("master") as master:
        eventually(lambda: rig.route("TBW102")[0] == BOTH, what="both registered")
        fill(master)
    rig.in_step()
    rig.kill("master")
    rig.wait_route({"0": "slave"}, 4, 5)
    rig.start("master", haSecret=SECRET + " but another")
    eventually(
        lambda: "the secrets of the two brokers differ" in str(status(rig, "master").get("isolated")),
        5,
        "why",
    )
    with rig.connect("slave") as slave:
        assert "the secrets of the two brokers differ" in str(ha_client(slave)["reason"])
    rig.kill("master")
    start(rig, "master")
    rig.wait_route(BOTH, 6)
