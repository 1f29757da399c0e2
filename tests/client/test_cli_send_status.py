"""`firearrow send` counts what a broker stored without the safety that it promises, and its exit code says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here

SETTINGS = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2", "allAckInSyncStateSet=false")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a SYNC_MASTER that no slave follows."""
    settings = (*SETTINGS, f"haListenPort={free_port()}")
    words = [word for setting in settings for word in ("--set", setting)]
    with BrokerProcess(tmp_path_factory.mktemp("alone") / "store", *words) as broker:
        assert broker.name_server is not None
        yield "{}:{}".format(*broker.name_server)


def firearrow(alone: str, *words: str) -> Ran:
    return here(*words, name_server=alone)


def test_one_message(alone: str) -> None:
    sent = firearrow(alone, "send", "T", "x")
    assert (sent.code, [row["status"] for row in sent.lines]) == (1, ["SLAVE_NOT_AVAILABLE"])
    assert "1 stored with SLAVE_NOT_AVAILABLE: they are at the master only" in sent.err


@pytest.mark.parametrize("words", [("x", "--count", "5"), ("a\nb\nc\nd\ne", "--each-line")])
def test_many_messages(alone: str, words: tuple[str, ...]) -> None:
    sent = firearrow(alone, "send", "T", *words)
    [row] = sent.lines
    assert sent.code == 1
    assert (row["sent"], row["failed"], row["unsafe"]) == (5, 0, 5)
    assert row["statuses"] == {"SLAVE_NOT_AVAILABLE": 5}
    assert "5 stored with SLAVE_NOT_AVAILABLE" in sent.err


def test_a_message_that_is_sent_again(alone: str) -> None:
    [sent] = firearrow(alone, "send", "T", "x").lines
    again = firearrow(alone, "message", "resend", "T", sent["msgId"], "--yes")
    assert (again.code, again.lines[0]["status"]) == (1, "SLAVE_NOT_AVAILABLE")
    assert "at the master only" in again.err


def test_a_bench(alone: str) -> None:
    measured = firearrow(alone, "bench", "send", "--count", "20", "--in-flight", "2")
    assert (measured.code, measured.lines[0]["unsafe"], measured.lines[0]["failed"]) == (1, 20, 0)


def test_what_is_stored_safely(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        address = "{}:{}".format(*broker.name_server)
        [row] = firearrow(address, "send", "T", "x", "--count", "3").rows
        assert (row["sent"], row["unsafe"], row["statuses"]) == (3, 0, {"SEND_OK": 3})
        assert firearrow(address, "send", "T", "x").rows[0]["status"] == "SEND_OK"
        assert firearrow(address, "bench", "send", "--count", "5").rows[0]["unsafe"] == 0
