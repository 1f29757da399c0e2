"""A full disk (simulated by a file size limit of the running process): sends fail, everything else continues."""

import resource
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.requests import read_queue, send

SERVICE_NOT_AVAILABLE = 14
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_sends_fail_while_the_disk_is_full_and_work_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        before = [b"%d" % n for n in range(20)]
        for body in before:
            assert send(connection, "Full", body).code == 0
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for _ in range(5):
            answer = send(connection, "Full", b"no room" * 1000)
            assert answer.code == SERVICE_NOT_AVAILABLE
            assert answer.remark
            assert [record.body for record in read_queue(connection, "Full", 0)] == before
            commit = {"consumerGroup": "CG", "topic": "Full", "queueId": "0", "commitOffset": "7"}
            assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        assert send(connection, "Full", b"room again").code == 0
        assert broker.log.read_text().count("messages are refused") == 1
        assert [record.body for record in read_queue(connection, "Full", 0)] == [*before, b"room again"]
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "store") as again, again.connect() as connection:
        assert [record.body for record in read_queue(connection, "Full", 0)] == [*before, b"room again"]


def limit(broker: BrokerProcess, size: int) -> None:
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_no_space_for_a_new_queue(tmp_path: Path) -> None:
    """Its file does not fit; the existing queues continue."""
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Old", b"0").code == 0
        limit(broker, 1_000_000)
        assert send(connection, "New", b"0").code == SERVICE_NOT_AVAILABLE
        assert send(connection, "Old", b"1").code == 0
        limit(broker, resource.RLIM_INFINITY)
        assert send(connection, "New", b"1").code == 0
        assert [record.body for record in read_queue(connection, "Old", 0)] == [b"0", b"1"]
        assert [record.body for record in read_queue(connection, "New", 0)] == [b"1"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_no_space_for_the_next_segment(tmp_path: Path, flush: str) -> None:
    args = ("--set", "mappedFileSizeCommitLog=65536", "--set", f"flushDiskType={flush}")
    with BrokerProcess(tmp_path / "store", *args) as broker, broker.connect() as connection:
        assert send(connection, "Roll", b"first").code == 0
        limit(broker, 60_000)
        codes = [send(connection, "Roll", bytes(9000)).code for _ in range(12)]
        assert set(codes) == {0, SERVICE_NOT_AVAILABLE}
        limit(broker, resource.RLIM_INFINITY)
        for _ in range(12):
            assert send(connection, "Roll", bytes(9000)).code == 0
        expected = 1 + codes.count(0) + 12
        assert [record.queue_offset for record in read_queue(connection, "Roll", 0)] == list(range(expected))
        assert broker.stop() == 0
