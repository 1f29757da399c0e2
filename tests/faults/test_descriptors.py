"""No descriptor left: connected clients are served, no loop spins, and all recovers when descriptors are free."""

import contextlib
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import pull

QUICK = ("--set", "flushIntervalConsumeQueue=20", "--set", "flushConsumerOffsetInterval=100")


def open_files(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def cpu_s(broker: BrokerProcess) -> float:
    user, system = Path(f"/proc/{broker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def no_descriptors(broker: BrokerProcess) -> Iterator[None]:
    """The process can open nothing more."""
    before = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("way", [WAYS["engine"], WAYS["complete"]], ids=["engine", "complete"])
def test_connected_clients_are_served(tmp_path: Path, way: tuple[str, ...]) -> None:
    acknowledged = AcknowledgedMessages()
    with BrokerProcess(tmp_path / "store", way=way) as broker, broker.connect() as connection:
        for _ in range(260):  # space for the next entries is reserved in steps, by opening their file
            assert acknowledged.send(connection, "Old") == 0
        with no_descriptors(broker), contextlib.ExitStack() as outside:
            for _ in range(20):
                outside.enter_context(socket.create_connection(broker.address, 5))
            begun, cpu = time.monotonic(), cpu_s(broker)
            for _ in range(100):
                assert acknowledged.send(connection, "Old") == 0
            answer = pull(connection, "Old", 360, sysFlag="6", suspendTimeoutMillis="1000")
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert cpu_s(broker) - cpu < 0.7 * (time.monotonic() - begun), "it spins"
        with broker.connect() as another:
            acknowledged.check(another)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH"])
def test_only_requests_that_need_a_file_are_refused(tmp_path: Path, flush: str) -> None:
    """A new queue's file, the next segment; background files wait, and sends are never stopped permanently."""
    acknowledged, segments = (
        AcknowledgedMessages(),
        ("--set", "mappedFileSizeCommitLog=65536", "--set", f"flushDiskType={flush}"),
    )
    with BrokerProcess(tmp_path / "store", *QUICK, *segments) as broker, broker.connect() as connection:
        assert acknowledged.send(connection, "Old") == 0
        acknowledged.know_group(connection, "Old")
        with no_descriptors(broker):
            for number in range(3):
                assert (
                    acknowledged.send(connection, "New", queue_id=number)
                    == ResponseCode.SERVICE_NOT_AVAILABLE
                )
                assert acknowledged.send(connection, "Old") == 0
            eventually(
                lambda: (
                    "the checkpoint could not be written" in broker.log.read_text()
                    or acknowledged.send(connection, "Old")
                )
            )
            while acknowledged.send(connection, "Old", 5000) == 0:
                pass
            assert acknowledged.commit(connection, "Old", 0, 1) == 0
            assert acknowledged.make_topic(connection, "Unsaved")[0] == ResponseCode.SYSTEM_ERROR
        for topic in ("New", "Old", "Newer"):
            assert acknowledged.send(connection, topic, 5000) == 0
        assert acknowledged.make_topic(connection, "Saved")[0] == 0
        acknowledged.check(connection)
        broker.kill()
    with BrokerProcess(tmp_path / "store", *QUICK, *segments) as broker, broker.connect() as connection:
        acknowledged.check(connection)
        assert broker.stop() == 0
