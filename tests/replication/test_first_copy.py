"""A slave that is cut off in the middle of its first copy, before it has its master's tables, and is promoted: the
topics of what it has are found."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.replication.pair_proxy import PairProxy
from tests.replication.pairs import SIZES, end_of, fill, name_server, own_ports, words
from tests.replication.promoted_pair import promoted
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import read_queue

TOPICS_REQUEST = b'"code":21,'


class PartOfLog:
    """A master whose slave gets no table of topics by request, and the log up to `most` only."""

    def __init__(self, folder: Path, names: str) -> None:
        listen, replication = free_port(), free_port()
        self.most = 0
        self._released = threading.Event()
        self.remoting, self.log = PairProxy(listen), PairProxy(replication)
        self.remoting.asked = lambda data: b"" if TOPICS_REQUEST in data else data
        self.log.change = self._held
        settings = SIZES | {
            "haListenPort": str(replication),
            "advertisedPort": self.remoting.address.rpartition(":")[2],
        }
        self.broker = BrokerProcess(
            folder, "--listen", f"127.0.0.1:{listen}", "--namesrv", names, *words(settings)
        )

    def start_slave(self, folder: Path, names: str) -> BrokerProcess:
        role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": self.log.address}
        return BrokerProcess(folder, *own_ports(), "--namesrv", names, *words(SIZES | role))

    def _held(self, connection: int, at: int, data: bytes) -> bytes:
        if at + len(data) > self.most:
            self._released.wait(60)
        return data

    def close(self) -> None:
        self._released.set()
        self.broker.kill()
        self.log.close()
        self.remoting.close()


@contextmanager
def part_of_log(folder: Path, names: str) -> Iterator[PartOfLog]:
    master = PartOfLog(folder, names)
    try:
        yield master
    finally:
        master.close()


def copied(slave: BrokerProcess, at_least: int) -> None:
    with slave.connect() as client:
        eventually(lambda: end_of(client) >= at_least, what="a part of the log")


def knows(client: ClientSocket, topic: str) -> bool:
    return client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).code == 0


def both_are_found(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for topic in ("First", "Second"):
            assert knows(client, topic)
            assert sum(len(read_queue(client, topic, queue)) for queue in range(4)) > 0


@pytest.mark.parametrize("is_running", [True, False])
def test_topics_of_a_part_of_the_log_are_found(tmp_path: Path, is_running: bool) -> None:
    """Also those of what was copied after the slave was killed and started again."""
    with BrokerProcess(tmp_path / "names", *words({"brokerName": "names"})) as names:
        address = name_server(names)
        with part_of_log(tmp_path / "master", address) as master:
            with master.broker.connect() as client:
                fill(client, 400, 3000, "First")
                first = end_of(client)
                fill(client, 400, 3000, "Second")
                end = end_of(client)
            master.most = first * 3 // 4
            with master.start_slave(tmp_path / "slave", address) as slave:
                copied(slave, first // 2)
                slave.kill()
            master.most = (end - first) // 2 + first // 2
            with master.start_slave(tmp_path / "slave", address) as slave:
                copied(slave, first + (end - first) // 8)
                with slave.connect() as client:
                    assert end_of(client) < end
                    assert not knows(client, "Second")  # else this tests nothing
                master.broker.kill()
                if is_running:
                    promoted(slave, "--force").succeeded()
                    both_are_found(slave)
            if not is_running:
                assert here("promote", str(tmp_path / "slave"), "--yes").code == 0
                with master.start_slave(tmp_path / "slave", address) as slave:
                    both_are_found(slave)
