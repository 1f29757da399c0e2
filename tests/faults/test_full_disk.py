"""A real file system that is full: sends are refused with a sentence, all else continues, nothing promised is lost."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.small_disk import SmallDisk
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

SMALL = tuple(
    word
    for option in (
        "mappedFileSizeCommitLog=1048576",
        "mappedFileSizeConsumeQueue=20000",
        "maxHashSlotNum=1000",
        "maxIndexNum=2000",
        "flushConsumerOffsetInterval=500",
    )
    for word in ("--set", option)
)


NO_SPACE = "service not available now. The message could not be written to the disk: No space left on device"


def settings(flush: str) -> tuple[str, ...]:
    return (*SMALL, "--set", f"flushDiskType={flush}")


def load_full_disk(disk: SmallDisk, connection: ClientSocket, acknowledged: AcknowledgedMessages) -> None:
    """Messages, commits and changes before and while the disk is full."""
    assert acknowledged.make_topic(connection, "Before")[0] == 0
    for number in range(60):
        assert acknowledged.send(connection, "Full", 500, number % 3) == 0
    acknowledged.know_group(connection, "Full")
    assert acknowledged.commit(connection, "Full", 0, 3) == 0
    disk.fill(leave_bytes=300_000)
    codes = {
        acknowledged.send(connection, "Full", size, 1) for size in (9000, 100, 30_000) for _ in range(60)
    }
    assert codes <= {0, ResponseCode.SERVICE_NOT_AVAILABLE}
    disk.fill()
    while acknowledged.send(connection, "Full", 9000, 1) == 0:
        pass
    acknowledged.check(connection)
    for queue_offset in range(4, 12):
        assert acknowledged.commit(connection, "Full", 0, queue_offset) == 0
    code, remark = acknowledged.make_topic(connection, "While")
    assert code == 0 or (code == ResponseCode.SYSTEM_ERROR and "free disk space" in remark), remark
    assert all(code == ResponseCode.SERVICE_NOT_AVAILABLE for code, _ in acknowledged.refusals)
    assert {remark for _, remark in acknowledged.refusals} <= {NO_SPACE}


@pytest.mark.parametrize(("flush", "end"), [("ASYNC_FLUSH", "kill"), ("SYNC_FLUSH", "stop")])
def test_nothing_acknowledged_is_lost_on_a_full_disk(tmp_path: Path, flush: str, end: str) -> None:
    acknowledged = AcknowledgedMessages()
    with SmallDisk(tmp_path) as disk:
        with BrokerProcess(disk.store, *settings(flush)) as broker, broker.connect() as connection:
            load_full_disk(disk, connection, acknowledged)
            if end == "kill":
                broker.kill()
            else:
                assert broker.stop() in (0, 3), broker.log.read_text()
        disk.free_space()
        with BrokerProcess(disk.store, *settings(flush)) as broker, broker.connect() as connection:
            acknowledged.check(connection)
            assert acknowledged.send(connection, "Full", 9000) == 0
            assert broker.stop() == 0
        with BrokerProcess(disk.store, *settings(flush)) as broker, broker.connect() as connection:
            acknowledged.check(connection)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_the_broker_recovers_when_there_is_space(tmp_path: Path, kind: str) -> None:
    acknowledged = AcknowledgedMessages()
    with (
        SmallDisk(tmp_path, 24, kind) as disk,
        BrokerProcess(disk.store, *settings("SYNC_FLUSH")) as broker,
        broker.connect() as connection,
    ):
        for _ in range(2):
            assert acknowledged.send(connection, "Room", 1000) == 0
            disk.fill()
            while acknowledged.send(connection, "Room", 50_000) == 0:
                pass
            acknowledged.check(connection)
            disk.free_space()
            assert acknowledged.send(connection, "Room", 50_000) == 0
            assert acknowledged.make_topic(connection, f"Topic{len(acknowledged.topics)}")[0] == 0
        acknowledged.check(connection)
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("ext4", "kill"),
        ("tmpfs", "stop"),
        pytest.param("ext4", "stop", marks=pytest.mark.long),
        pytest.param("tmpfs", "kill", marks=pytest.mark.long),
    ],
)
def test_a_start_on_a_full_disk_serves_readers(tmp_path: Path, kind: str, end: str) -> None:
    """What a mapping shows is on the disk already: on tmpfs, reading a hole would be SIGBUS. Queues and index
    are rebuilt in the blocks that they have."""
    acknowledged = AcknowledgedMessages()
    with SmallDisk(tmp_path, 16, kind) as disk:
        with BrokerProcess(disk.store, *SMALL) as broker, broker.connect() as connection:
            load_full_disk(disk, connection, acknowledged)
            if end == "kill":
                broker.kill()
            else:
                broker.stop()
        disk.fill()
        with BrokerProcess(disk.store, *SMALL) as broker, broker.connect() as connection:
            acknowledged.check(connection)
            disk.fill()  # the start has deleted a file
            while acknowledged.send(connection, "Full", 30_000, 0) == 0:
                pass
            assert acknowledged.refusals[-1] == (ResponseCode.SERVICE_NOT_AVAILABLE, NO_SPACE)
            acknowledged.check(connection)
            disk.free_space()
            assert acknowledged.send(connection, "Full", 30_000, 0) == 0
            acknowledged.check(connection)
            assert broker.stop() == 0
        with BrokerProcess(disk.store, *SMALL) as broker, broker.connect() as connection:
            acknowledged.check(connection)
            assert broker.stop() == 0
