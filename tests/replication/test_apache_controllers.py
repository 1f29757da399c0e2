"""Brokers of ours, and with one of Apache's 5.5.0, under a controller of Apache's: failover in both directions."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.driver import Driver
from tests.interop.peers import CLUSTER, Apache, address
from tests.interop.toolchain import java_class_path, need
from tests.replication.controllers import SIZES, Controllers, broker_under, sent, takes_writes
from tests.replication.pairs import digests, end_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send

pytestmark = pytest.mark.interop
WITHIN_S = 60


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    need(lambda: java_class_path("client5"))
    controllers = Controllers(tmp_path_factory.mktemp("controllers"))
    try:
        yield controllers
    finally:
        controllers.kill()


def await_set(controllers: Controllers, name: str, members: list[int]) -> None:
    eventually(lambda: controllers.replica_info(name)["set"] == members, WITHIN_S, f"the set {members}")


def await_writes(at: tuple[str, int]) -> float:
    began = time.monotonic()
    eventually(lambda: takes_writes(at), WITHIN_S, f"writes at {at}")
    return time.monotonic() - began


def await_equal(stores: tuple[Path, Path], ends: tuple[tuple[str, int], ...], end: int) -> None:
    for at in ends:
        with ClientSocket(at) as connection:
            eventually(lambda: end_of(connection) == end, WITHIN_S, f"the end {end} at {at}")
    one, other = (digests(store, end) for store in stores)
    assert one == other


def test_two_of_ours(controllers: Controllers, tmp_path: Path) -> None:
    name = "ours"
    settings = controllers.settings(name)
    brokers: list[BrokerProcess] = []
    try:
        brokers.append(broker_under(tmp_path / "a", 0, **settings))
        await_writes(brokers[0].address)
        brokers.append(broker_under(tmp_path / "b", 0, **settings))
        await_set(controllers, name, [1, 2])
        acknowledged = _acknowledged_until_killed(brokers[0])
        assert await_writes(brokers[1].address) < 5
        assert controllers.replica_info(name)["epoch"] == 2
        with brokers[1].connect() as connection:
            found = {record.body for queue in range(4) for record in read_queue(connection, "T", queue)}
        assert acknowledged <= found
        brokers.append(broker_under(tmp_path / "a", brokers[0].address[1], **settings))
        await_set(controllers, name, [1, 2])
        end = sent(brokers[1].address, 50)
        await_equal((tmp_path / "a", tmp_path / "b"), (brokers[2].address,), end)
        assert brokers[1].stop() == 0
        assert await_writes(brokers[2].address) < 5
        assert controllers.replica_info(name)["epoch"] == 3
    finally:
        for broker in brokers:
            broker.kill()


def _acknowledged_until_killed(master: BrokerProcess) -> set[bytes]:
    """Send under load until the master is killed in the middle."""
    acknowledged: set[bytes] = set()

    def produce() -> None:
        number = 0
        try:
            with master.connect() as connection:
                while True:
                    body = b"%06d" % number * 20
                    if send(connection, "T", body, queue_id=number % 4).code == 0:
                        acknowledged.add(body)
                    number += 1
        except OSError:
            return

    producer = threading.Thread(target=produce)
    producer.start()
    eventually(lambda: len(acknowledged) > 300, what="300 messages")
    master.kill()
    producer.join()
    return acknowledged


@pytest.mark.long
def test_one_of_apaches_and_one_of_ours(controllers: Controllers, tmp_path: Path) -> None:
    name = "mixed"
    settings = controllers.settings(name)
    conf = {**SIZES, **settings, "timerWheelEnable": "true"}
    stores = tmp_path / "apache", tmp_path / "ours"
    apache = Apache(stores[0], conf)
    ours: BrokerProcess | None = None
    try:
        await_writes(address(apache.address))
        ours = broker_under(stores[1], 0, **settings)
        await_set(controllers, name, [1, 2])
        end = sent(address(apache.address), 300)
        await_equal(stores, (ours.address,), end)
        apache.kill()
        assert await_writes(ours.address) < 5
        sent(ours.address, 100)
        apache = Apache(stores[0], conf)
        await_set(controllers, name, [1, 2])
        end = sent(ours.address, 100)
        await_equal(stores, (address(apache.address),), end)
        ours.kill()
        await_writes(address(apache.address))
        assert controllers.replica_info(name)["epoch"] == 3
        sent(address(apache.address), 100)
        ours = broker_under(stores[1], ours.address[1], **settings)
        await_set(controllers, name, [1, 2])
        end = sent(address(apache.address), 100)
        await_equal(stores, (ours.address,), end)
        _equal_files(stores)
    finally:
        apache.kill()
        if ours is not None:
            ours.kill()


def _equal_files(stores: tuple[Path, Path]) -> None:
    """The epochs, and who is who."""
    one, other = ((store / "epochFileCheckpoint").read_bytes() for store in stores)
    assert one.strip() == other.strip()
    assert [(store / "brokerIdentity").read_text() for store in stores] == [
        f"{CLUSTER}#mixed#1",
        f"{CLUSTER}#mixed#2",
    ]


def test_mqadmin_shows_and_moves_the_master(controllers: Controllers, tmp_path: Path) -> None:
    name = "moved"
    settings = controllers.settings(name)
    brokers: list[BrokerProcess] = []
    driver = Driver("java5", controllers.name_server, tmp_path / "java")

    def mqadmin(*arguments: str) -> str:
        [output] = driver.ask("mqadmin", argument=list(arguments))
        return str(output["text"])

    def masters() -> dict[str, str]:
        """Number → address, as the name server has them."""
        rows = [line.split() for line in mqadmin("clusterList").splitlines()]
        return {row[2]: row[3] for row in rows if len(row) > 3 and row[1] == name}

    try:
        brokers.append(broker_under(tmp_path / "a", 0, **settings))
        await_writes(brokers[0].address)
        brokers.append(broker_under(tmp_path / "b", 0, **settings))
        await_set(controllers, name, [1, 2])
        one, other = ("{}:{}".format(*broker.address) for broker in brokers)
        sent(brokers[0].address, 20)
        eventually(lambda: masters() == {"0": one, "2": other}, WITHIN_S, "both at the name server")
        shown = mqadmin("getSyncStateSet", "-a", controllers.address, "-b", name)
        assert "#MasterBrokerId\t1" in shown
        assert "#SyncStateSetNums\t2" in shown
        epochs = mqadmin("getBrokerEpoch", "-b", name)
        assert epochs.count("#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=") == 2
        # the controller elects; mqadmin 5.5.0 cannot read its answer, whose JSON has bare numbers as keys
        mqadmin("electMaster", "-a", controllers.address, "-b", "2", "-bn", name, "-c", CLUSTER)
        assert await_writes(brokers[1].address) < 10
        await_set(controllers, name, [1, 2])
        eventually(lambda: masters() == {"0": other, "1": one}, WITHIN_S, "the other way round")
        end = sent(brokers[1].address, 20)
        await_equal((tmp_path / "a", tmp_path / "b"), (brokers[0].address,), end)
    finally:
        driver.stop()
        for broker in brokers:
            broker.kill()
