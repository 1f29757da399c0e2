"""The log of a store of Apache's, read through firearrow.client.store while a broker runs on it and appends."""

from pathlib import Path

import pytest

from firearrow.client.store import CommitLog, Record
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send
from tests.unit.store.test_golden import Golden, assert_same
from tests.wire_golden.replay import AS_RECORDED

SETTINGS = [word for key, value in AS_RECORDED.items() for word in ("--set", f"{key}={value}")]


def read(root: Path) -> dict[int, Record]:
    """All records by their physical offsets."""
    with CommitLog.open_readonly(root / "commitlog") as log:
        return {record.physical_offset: record for record in log.records()}


@pytest.mark.parametrize("name", ["store-apache", "store-apache-crashed"])
def test_a_store_is_read_while_a_broker_runs_on_it(name: str, tmp_path: Path) -> None:
    golden = Golden(name, tmp_path)
    with BrokerProcess(golden.root, *SETTINGS) as broker, broker.connect() as client:
        records = read(golden.root)
        messages = [message for _, queue in golden.queues() for message in queue["messages"]]
        assert len(messages) > 400
        for message in messages:
            assert_same(records[message["physicalOffset"]], message)
        assert send(client, "NewTopic", b"new", tag="t").code == 0
        later = read(golden.root)
        assert later.items() >= records.items()
        [new] = [record for record in later.values() if record.topic == "NewTopic"]
        assert (new.body, new.properties["TAGS"]) == (b"new", "t")
        assert broker.stop() == 0
    assert read(golden.root).items() >= later.items()
