"""A failing disk: no more messages are accepted, the remarks say why, and confirmed messages can be read."""

import errno
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.shim import Call, Shim
from tests.faults.small_disk import SmallDisk
from tests.faults.test_full_disk import settings
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue

REFUSED = re.compile(
    r"service not available now\. .*(Input/output error|Read-only file system|stopped taking messages)"
)
QUICK = ("--set", "flushIntervalCommitLog=20", "--set", "flushIntervalConsumeQueue=20")


def refused(connection: ClientSocket, acknowledged: AcknowledgedMessages) -> bool:
    """Whether sends are refused now; messages accepted until then are tallied."""
    code = acknowledged.send(connection, "T")
    assert code in (0, ResponseCode.SERVICE_NOT_AVAILABLE)
    return code != 0


def refused_to_the_end(
    broker: BrokerProcess, connection: ClientSocket, acknowledged: AcknowledgedMessages
) -> None:
    """It does not recover by itself: only a new start reads what the disk really has."""
    eventually(lambda: refused(connection, acknowledged))
    for _ in range(5):
        assert refused(connection, acknowledged)
        acknowledged.check(connection)
    assert all(REFUSED.match(remark) for _, remark in acknowledged.refusals), acknowledged.refusals


def test_a_write_error_refuses_only_that_batch(tmp_path: Path) -> None:
    flush = "SYNC_FLUSH"
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", *settings(flush), environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        for _ in range(3):
            assert acknowledged.send(connection, "T") == 0
            shim.fail(Call.WRITE, errno.EIO, "/commitlog/")
            assert refused(connection, acknowledged)
            shim.heal()
            assert acknowledged.send(connection, "T") == 0
        acknowledged.check(connection)
        broker.kill()
    with BrokerProcess(tmp_path / "store", *settings(flush)) as broker, broker.connect() as connection:
        acknowledged.check(connection)


@pytest.mark.parametrize(
    ("flush", "call", "path"),
    [
        ("ASYNC_FLUSH", Call.SYNC, "/commitlog/"),
        ("SYNC_FLUSH", Call.SYNC, "/commitlog/"),
        ("ASYNC_FLUSH", Call.MSYNC, "/consumequeue/"),
        ("SYNC_FLUSH", Call.MSYNC, "/index/"),
    ],
)
def test_a_sync_error_stops_sends(tmp_path: Path, flush: str, call: Call, path: str) -> None:
    """The error comes once; the kernel would report success for every later sync."""
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", *settings(flush), *QUICK, environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        assert acknowledged.send(connection, "T") == 0
        shim.fail(call, errno.EIO, path, times=1)
        refused_to_the_end(broker, connection, acknowledged)
        acknowledged.know_group(connection, "T")
        assert acknowledged.commit(connection, "T", 0, 1) == 0
        assert broker.stop() == 3
        assert broker.log.read_text().count("the disk failed a flush") == 1
    with BrokerProcess(tmp_path / "store", *settings(flush)) as broker, broker.connect() as connection:
        acknowledged.check(connection)
        assert acknowledged.send(connection, "T") == 0


@pytest.mark.parametrize("call", [Call.OPEN, Call.SYNC])
def test_a_checkpoint_that_cannot_be_written_stops_nothing(tmp_path: Path, call: Call) -> None:
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        rule = shim.fail(call, errno.EIO, "/checkpoint")
        eventually(lambda: acknowledged.send(connection, "T") == 0 and shim.failures(rule) > 2)
        assert broker.log.read_text().count("the checkpoint could not be written") == 1
        broker.kill()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        acknowledged.check(connection)


def test_a_slow_disk_is_flushed_again(tmp_path: Path) -> None:
    """A few queues are flushed again soon, however long the disk took for them: it may have been one slow
    moment."""
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        slow = shim.slow(Call.MSYNC, 800, "/consumequeue/", times=2)
        marked = shim.slow(Call.SYNC, 0, "/checkpoint")
        eventually(lambda: acknowledged.send(connection, "T") == 0 and shim.failures(slow) == 2)
        before = shim.failures(marked)
        eventually(lambda: acknowledged.send(connection, "T") == 0 and shim.failures(marked) > before + 2)


@pytest.mark.parametrize(
    ("flush", "fault"), [("SYNC_FLUSH", SmallDisk.turn_read_only), ("ASYNC_FLUSH", SmallDisk.shut_down)]
)
def test_a_file_system_that_fails(tmp_path: Path, flush: str, fault: Callable[[SmallDisk], None]) -> None:
    """Remounted read-only by the kernel, or shut down: the process lives and serves what it has."""
    acknowledged = AcknowledgedMessages()
    with SmallDisk(tmp_path) as disk:
        with BrokerProcess(disk.store, *settings(flush)) as broker, broker.connect() as connection:
            for _ in range(20):
                assert acknowledged.send(connection, "T") == 0
            acknowledged.know_group(connection, "T")
            assert acknowledged.commit(connection, "T", 0, 5) == 0
            subprocess.run(["sync", "-f", disk.path], check=True)
            fault(disk)
            refused_to_the_end(broker, connection, acknowledged)
            code, remark = acknowledged.make_topic(connection, "New")
            assert (code, "free disk space" in remark) == (ResponseCode.SYSTEM_ERROR, True)
            assert broker.stop() == 3
        disk.mount_again()
        with BrokerProcess(disk.store, *settings(flush)) as broker, broker.connect() as connection:
            acknowledged.check(connection)
            assert acknowledged.send(connection, "T") == 0


def test_what_only_the_page_cache_has_is_not_trusted(tmp_path: Path) -> None:
    """After a failed sync the kernel marks pages clean that the disk lacks: a record in them does not count."""
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with SmallDisk(tmp_path) as disk:
        with (
            BrokerProcess(disk.store, *settings("SYNC_FLUSH"), environment=shim.environment) as broker,
            broker.connect() as connection,
        ):
            for _ in range(3):
                assert acknowledged.send(connection, "T") == 0
            shim.fail(Call.SYNC, errno.EIO, "/commitlog/", times=1)
            assert acknowledged.send(connection, "T", 4000) == ResponseCode.SERVICE_NOT_AVAILABLE
            subprocess.run(["sync", "-f", disk.path], check=True)
            assert disk.lose(b"4." + b"x" * 4000) > 0
            broker.kill()
        with BrokerProcess(disk.store, *settings("SYNC_FLUSH")) as broker, broker.connect() as connection:
            assert "a sync had failed" in broker.log.read_text()
            assert [record.body for record in read_queue(connection, "T", 0)] == list(
                acknowledged.stored.values()
            )
            assert acknowledged.send(connection, "T") == 0
            acknowledged.check(connection)
            assert broker.stop() == 0
        with BrokerProcess(disk.store, *settings("SYNC_FLUSH")) as broker, broker.connect() as connection:
            assert "a sync had failed" not in broker.log.read_text().split("a sync had failed", 1)[1]
            acknowledged.check(connection)
