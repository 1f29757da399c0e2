"""A queue entry that is damaged while the broker runs: consumers get every message, and the broker logs it once."""

import os
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.requests import read_queue, send


def test_a_damaged_entry_is_repaired_and_logged_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        for number in range(10):
            assert send(connection, "T", b"%d" % number).code == 0
        queue = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
        with queue.open("r+b") as file:
            os.pwrite(file.fileno(), b"\xff" * 20, 4 * 20)
        for _ in range(2):
            assert [record.body for record in read_queue(connection, "T", 0)] == [
                b"%d" % n for n in range(10)
            ]
        broker.stop()
        said = [line for line in broker.log.read_text().splitlines() if "points to no valid record" in line]
        assert len(said) == 1
        assert "entry 4 of queue 0 of T" in said[0]
