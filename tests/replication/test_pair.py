"""A pair of ours over Apache's wire: equal logs over kills of both, and SYNC_MASTER."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import (
    SEGMENT,
    TOPIC,
    digests,
    end_of,
    fill,
    name_server,
    start_master,
    start_slave,
)
from tests.replication.raw_slave import status_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "1000"}


@contextmanager
def load(master: BrokerProcess) -> Iterator[list[bytes]]:
    """Sends meanwhile; the bodies that were answered with 0."""
    stop, stored = threading.Event(), list[bytes]()

    def run() -> None:
        with suppress(OSError), master.connect() as connection:
            while not stop.is_set():
                body = b"load %06d" % len(stored) * 20
                if send(connection, TOPIC, body).code == 0:
                    stored.append(body)

    loader = threading.Thread(target=run)
    loader.start()
    try:
        eventually(lambda: len(stored) > 100, what="the first sends")
        yield stored
    finally:
        stop.set()
        loader.join()


def equal(master: BrokerProcess, slave: BrokerProcess) -> int:
    with master.connect() as ours, slave.connect() as theirs:
        end = end_of(ours)
        eventually(lambda: end_of(theirs) == end, what=f"the log's end {end}")
    assert digests(slave.store, end) == digests(master.store, end)
    return end


def knows_the_topic(slave: BrokerProcess) -> None:
    with slave.connect() as connection:
        eventually(
            lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}).code == 0, what="the topic"
        )


def is_in_sync(connection: ClientSocket) -> None:
    eventually(lambda: status_of(connection)["inSyncSlaveNums"] == 1, what="the slave")


def test_logs_are_equal_over_rolls_and_kills_of_both(tmp_path: Path) -> None:
    with start_master(tmp_path / "master", haListenPort=str(free_port())) as master:
        with master.connect() as connection:
            fill(connection, 1500)
        with start_slave(tmp_path / "slave", name_server(master)) as slave:
            assert equal(master, slave) > 2 * SEGMENT
            with load(master):
                slave.kill()
            slave.running.start()
            equal(master, slave)
            with load(master) as stored:
                master.kill()
            master.running.start()
            equal(master, slave)
            with master.connect() as connection:
                fill(connection, 100)
            equal(master, slave)
            knows_the_topic(slave)
            with master.connect() as connection, slave.connect() as reader:
                for queue in range(4):
                    assert read_queue(reader, TOPIC, queue) == read_queue(connection, TOPIC, queue)
                assert stored[-1] in {record.body for record in read_queue(reader, TOPIC, 0)}
            assert slave.running.stop() == 0


@pytest.mark.parametrize("flush", [pytest.param("ASYNC_FLUSH", marks=pytest.mark.long), "SYNC_FLUSH"])
def test_what_a_sync_master_answered_is_at_the_slave(tmp_path: Path, flush: str) -> None:
    settings = SYNC | {"haListenPort": str(free_port()), "flushDiskType": flush}
    with (
        start_master(tmp_path / "master", **settings) as master,
        start_slave(tmp_path / "slave", name_server(master), flushDiskType=flush) as slave,
    ):
        with master.connect() as connection:
            is_in_sync(connection)
            fill(connection, 4)
        knows_the_topic(slave)
        with load(master) as stored:
            master.kill()
        with slave.connect() as reader:
            bodies = [record.body for record in read_queue(reader, TOPIC, 0)][1:]
        assert bodies[: len(stored)] == stored
        assert len(bodies) <= len(stored) + 1
        master.running.start()
        with master.connect() as connection:
            is_in_sync(connection)
            assert send(connection, TOPIC, b"again").code == 0
            slave.kill()
            eventually(lambda: not status_of(connection)["haConnectionInfo"], what="the slave's end")
            assert send(connection, TOPIC, b"alone").code == 11
            slave.running.start()
            is_in_sync(connection)
            assert send(connection, TOPIC, b"and again").code == 0
        equal(master, slave)
