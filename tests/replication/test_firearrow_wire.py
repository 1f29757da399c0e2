"""A pair of ours over its own wire: who may join whom, damage on the way, the tail of an old master."""

import json
import os
import random
import socket
import time
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow.broker.maintenance.backup import backup
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.log.pair_identity import NO_ID
from firearrow.broker.replication.wires.firearrow.frames import Kind, frame
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC
from tests.faults.small_disk import SmallDisk
from tests.replication.pair_proxy import PairProxy
from tests.replication.pairs import (
    SECRET,
    TOPIC,
    digests,
    end_of,
    fill,
    ha_client,
    name_server,
    start_master,
    start_slave,
)
from tests.replication.raw_slave import status_of
from tests.replication.test_pair import equal, knows_the_topic
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send


def identity(store: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((store / "config" / "pairIdentity.json").read_bytes())
    return found


def refused(master: BrokerProcess) -> list[dict[str, object]]:
    with master.connect() as connection:
        found: list[dict[str, object]] = status_of(connection).get("refused", [])  # type: ignore[assignment]
    return found


def is_closed(port: int, data: bytes) -> bool:
    """Whether the master closes the connection on which this is said, and says nothing."""
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.settimeout(10)
        stranger.sendall(data)
        try:
            return stranger.recv(1) == b""
        except ConnectionError:
            return True


def is_refused(slave: BrokerProcess, text: str, state: str = "refused") -> None:
    with slave.connect() as connection:
        eventually(lambda: text in str(ha_client(connection)["reason"]), what=text)
        assert ha_client(connection)["state"] == state


def test_a_slave_joins_and_is_known_by_its_node(tmp_path: Path) -> None:
    settings = {"haListenPort": str(free_port()), "haSecret": SECRET}
    with start_master(tmp_path / "master", **settings) as master:
        with master.connect() as connection:
            fill(connection, 300)
            began = end_of(connection)
        with start_slave(tmp_path / "slave", name_server(master), haSecret=SECRET) as slave:
            equal(master, slave)
            knows_the_topic(slave)
            ours, theirs = identity(master.store), identity(slave.store)
            assert ours["pairId"] == theirs["pairId"] != NO_ID.hex()
            assert EpochFile(slave.store).entries == EpochFile(master.store).entries == ((1, began),)
            with master.connect() as connection:
                [entry] = status_of(connection)["haConnectionInfo"]  # type: ignore[misc]
                assert entry["node"] == theirs["nodeId"] != ours["nodeId"]
            assert slave.running.stop() == 0
            with master.connect() as connection:
                fill(connection, 50)
            slave.running.start()
            equal(master, slave)


def test_a_flipped_bit_is_never_stored(tmp_path: Path) -> None:
    port = free_port()
    with start_master(tmp_path / "master", haListenPort=str(port)) as master:
        proxy, draw = PairProxy(port), random.Random(7)

        def change(connection: int, at: int, data: bytes) -> bytes:
            if connection > 5 or at + len(data) < 2000:
                return data
            damaged = bytearray(data)
            damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            return bytes(damaged)

        proxy.change = change
        with master.connect() as connection:
            fill(connection, 600)
        with start_slave(tmp_path / "slave", name_server(master), proxy.address) as slave:
            equal(master, slave)
            assert proxy.connections > 5
            with slave.connect() as reader, master.connect() as connection:
                knows_the_topic(slave)
                assert read_queue(reader, TOPIC, 1) == read_queue(connection, TOPIC, 1)
        proxy.close()


def test_another_secret_changes_nothing(tmp_path: Path) -> None:
    port = free_port()
    with start_master(tmp_path / "master", haListenPort=str(port), haSecret=SECRET) as master:
        with master.connect() as connection:
            fill(connection, 5)
        for secret, text in (("another secret of some bytes", "secrets of the two"), ("", "has a secret")):
            with start_slave(tmp_path / f"slave{len(secret)}", name_server(master), haSecret=secret) as slave:
                is_refused(slave, text)
                with slave.connect() as connection:
                    assert end_of(connection) == 0
        assert identity(master.store)["pairId"] == NO_ID.hex()
        assert not EpochFile(master.store).entries
        assert is_closed(port, bytes(8))
        assert "haAllowedAddresses" in str(refused(master))


def test_another_pair_is_refused_by_name_on_both_sides(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with (
            start_master(tmp_path / name, haListenPort=str(free_port())) as master,
            start_slave(tmp_path / f"slave-{name}", name_server(master)) as slave,
        ):
            eventually(lambda store=slave.store: identity(store)["pairId"] != NO_ID.hex(), what="the pair")  # type: ignore[misc]
    ours, theirs = (identity(tmp_path / name)["pairId"] for name in ("one", "two"))
    with (
        start_master(tmp_path / "one", haListenPort=str(free_port())) as master,
        start_slave(tmp_path / "slave-two", name_server(master)) as slave,
    ):
        is_refused(slave, theirs)
        [entry] = refused(master)
        assert ours in str(entry["reason"])
        assert theirs in str(entry["reason"])


def has_restarted(broker: BrokerProcess) -> None:
    def answers() -> bool:
        try:
            with broker.connect() as connection:
                return end_of(connection) >= 0
        except OSError:
            return False

    eventually(answers, what="that it answers again")


@pytest.mark.parametrize("clean", [True, False])
def test_the_tail_of_an_old_master_is_cut_and_kept(tmp_path: Path, clean: bool) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    port = str(free_port())
    with start_master(one, haListenPort=port) as old:
        with start_slave(two, name_server(old)) as slave:
            with old.connect() as connection:
                fill(connection, 200)
            end = equal(old, slave)
        with old.connect() as connection:
            fill(connection, 120)
            tail = end_of(connection)
        if clean:
            assert old.stop() == 0
    EpochFile(two).promote(2, end)
    with start_master(two, haListenPort=str(free_port())) as promoted:
        with promoted.connect() as connection:
            for number in range(20):
                assert send(connection, TOPIC, b"of the new master %d" % number, 1).code == 0
        with start_slave(one, name_server(promoted)) as back:
            eventually((one / "damaged").exists, what="the cut")
            has_restarted(back)
            assert equal(promoted, back) < tail
            with back.connect() as reader, promoted.connect() as connection:
                for queue in range(4):
                    assert read_queue(reader, TOPIC, queue) == read_queue(connection, TOPIC, queue)
            kept = sum(path.stat().st_size for path in (one / "damaged").iterdir())
            assert kept >= tail - end
            assert EpochFile(one).entries == EpochFile(two).entries
            with promoted.connect() as connection:
                fill(connection, 40)
            end = equal(promoted, back)
            back.running.stop()
            back.running.start()
            assert digests(one, end) == digests(two, end)


def test_a_longer_log_of_the_same_epoch_is_diverged_on_both_sides(tmp_path: Path) -> None:
    with (
        start_master(tmp_path / "one", haListenPort=str(free_port())) as master,
        start_slave(tmp_path / "two", name_server(master)) as slave,
        master.connect() as connection,
    ):
        fill(connection, 50)
        equal(master, slave)
        slave.stop()
    with start_master(tmp_path / "two") as alone, alone.connect() as connection:
        fill(connection, 30)
    with (
        start_master(tmp_path / "one", haListenPort=str(free_port())) as master,
        start_slave(tmp_path / "two", name_server(master)) as slave,
    ):
        is_refused(slave, "the slave's log ends at", "diverged")
        [entry] = refused(master)
        assert entry["state"] == "diverged"


def test_tls(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    port = free_port()
    client = {"tls.enable": "true", "tls.client.authServer": "true"}
    client["tls.client.trustCertPath"] = files.path("authority.pem")
    server = {"tls.server.mode": "enforcing", "tls.server.certPath": files.path("server.pem")}
    server["tls.server.keyPath"] = files.path("server.key")
    settings = client | server | {"haListenPort": str(port), "haSecret": SECRET}
    with start_master(tmp_path / "master", **settings) as master:
        master.tls = files.client()
        with master.connect() as connection:
            fill(connection, 200)
        with start_slave(tmp_path / "slave", name_server(master), haSecret=SECRET, **client) as slave:
            equal(master, slave)
        assert is_closed(port, MAGIC)
        assert "only TLS" in str(refused(master))


def test_a_slave_with_a_full_disk_tries_each_second_and_goes_on_once_there_is_space(tmp_path: Path) -> None:
    with (
        SmallDisk(tmp_path, 12, kind="tmpfs") as disk,
        start_master(tmp_path / "master", haListenPort=str(free_port())) as master,
        start_slave(disk.store, name_server(master)) as slave,
        master.connect() as connection,
        slave.connect() as reader,
    ):
        fill(connection, 20)
        eventually(lambda: end_of(reader) == end_of(connection), what="the master's end")
        disk.fill(leave_bytes=1 << 16)
        fill(connection, 100, 10_000)
        eventually(lambda: "to the disk" in str(ha_client(reader)["reason"]), what="the full disk")
        before = master.log.read_text().count("copies the log from")
        time.sleep(3)
        assert 0 < master.log.read_text().count("copies the log from") - before <= 5
        disk.free_space()
        equal(master, slave)


def test_garbage_closes_the_connection_and_leaks_nothing(tmp_path: Path) -> None:
    port, draw = free_port(), random.Random(3)
    with start_master(tmp_path / "master", haListenPort=str(port)) as master, master.connect() as connection:
        fill(connection, 20)
        descriptors = Path(f"/proc/{master.process.pid}/fd")
        before = len(os.listdir(descriptors))
        for number in range(200):
            garbage = draw.randbytes(draw.randrange(1, 3000))
            if number % 3 == 0:
                garbage = frame(Kind.HELLO, garbage)
            elif number % 3 == 1:
                garbage = frame(draw.choice(list(Kind)), garbage[:20])
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.settimeout(10)
                stranger.sendall(MAGIC + garbage)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(1 << 16):
                    pass
        eventually(lambda: len(os.listdir(descriptors)) <= before + 3, what="closed connections")
        assert identity(master.store)["pairId"] == NO_ID.hex()
        assert send(connection, TOPIC, b"still there").code == 0
        with start_slave(tmp_path / "slave", name_server(master)) as slave:
            equal(master, slave)


def test_a_backup_of_the_master_joins_with_an_id_of_its_own(tmp_path: Path) -> None:
    with start_master(tmp_path / "master", haListenPort=str(free_port())) as master:
        with master.connect() as connection:
            fill(connection, 100)
            with start_slave(tmp_path / "first", name_server(master)) as slave:
                equal(master, slave)
            backup(str(master.store), tmp_path / "copy")
            fill(connection, 50)
        pair = identity(master.store)
        assert identity(tmp_path / "copy") == pair
        assert EpochFile(tmp_path / "copy").entries == EpochFile(master.store).entries
        with start_slave(tmp_path / "copy", name_server(master)) as slave:
            equal(master, slave)
            ours = identity(slave.store)
            assert ours["pairId"] == pair["pairId"]
            assert ours["nodeId"] != pair["nodeId"]
