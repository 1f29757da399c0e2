"""Files that cannot be written: what was acknowledged survives, what cannot be saved is not acknowledged."""

import errno
from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.shim import Call, Shim
from tests.support.broker_process import BrokerProcess


def test_offsets_from_the_journal_are_saved_to_their_file(tmp_path: Path) -> None:
    """A kill, a start, a clean stop, a start: the stop ends the journal, so the file must contain them by then."""
    acknowledged = AcknowledgedMessages()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert acknowledged.send(connection, "T") == 0
        acknowledged.know_group(connection, "T")
        assert acknowledged.commit(connection, "T", 0, 1) == 0
        broker.kill()
    for _ in range(2):
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
            acknowledged.check(connection)
            assert broker.stop() == 0


@pytest.mark.parametrize("error", [errno.ENOSPC])
def test_a_stop_that_cannot_save_leaves_the_journal_in_force(tmp_path: Path, error: int) -> None:
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        assert acknowledged.send(connection, "T") == 0
        acknowledged.know_group(connection, "T")
        shim.fail(Call.OPEN, error, "/config/")
        assert acknowledged.commit(connection, "T", 0, 1) == 0
        code, remark = acknowledged.make_topic(connection, "Unsaved")
        assert (code, "free disk space" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert broker.stop() == 3
        log = broker.log.read_text()
        assert "cannot write the offsets file" in log
        assert "was not closed cleanly" in log
    for _ in range(2):
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
            acknowledged.check(connection)
            assert broker.stop() == 0


def test_a_change_is_acknowledged_when_its_file_is_written(tmp_path: Path) -> None:
    """Refused while the file cannot be written, also when retried; then acknowledged, and durable."""
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        for call in (Call.CREATE, Call.WRITE, Call.SYNC, Call.RENAME):
            shim.fail(call, errno.ENOSPC, "/config/topics.json")
            for _ in range(2):
                code, remark = acknowledged.make_topic(connection, f"By{call}")
                assert (code, "free disk space" in remark) == (ResponseCode.SYSTEM_ERROR, True), call
            shim.heal()
            assert acknowledged.make_topic(connection, f"By{call}") == (0, "")
        broker.kill()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        acknowledged.check(connection)
