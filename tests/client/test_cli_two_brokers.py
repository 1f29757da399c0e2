"""The command line with two brokers: what differs is shown by broker, and a dead one is trouble."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import unique
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.peers import BROKER, Peer
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually


@pytest.fixture
def second(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondBroker]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    broker = SecondBroker(peer, tmp_path / "store")
    yield broker
    broker.kill()
    eventually(
        lambda: len(here("status", name_server=peer.name_server).lines) <= 1,
        30,
        "the name server does not forget the broker",
    )


def by_broker(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["broker"]: row for row in rows}


def test_two_brokers(peer: Peer, second: SecondBroker) -> None:
    topic = unique("both")

    def firearrow(*words: str) -> Ran:
        return here(*words, name_server=peer.name_server)

    assert firearrow("topic", "create", topic, "--queues", "2").rows[0]["brokers"] == [BROKER, NAME]
    [shown] = firearrow("topic", "show", topic).rows
    assert [(queue["broker"], queue["queueId"]) for queue in shown["queues"]] == [
        (BROKER, 0),
        (BROKER, 1),
        (NAME, 0),
        (NAME, 1),
    ]
    assert set(by_broker(firearrow("topic", "set", topic, "--perm", "r").rows)) == {BROKER, NAME}
    assert set(by_broker(firearrow("status").rows)) == {BROKER, NAME}
    assert set(by_broker(firearrow("config", "get", "flushDiskType").rows)) == {BROKER, NAME}
    # the first broker is the run's, whose options other tests may have changed
    firearrow("config", "set", "maxTransferCountOnMessageInMemory=17", "--broker", NAME, "--yes").succeeded()
    different = firearrow("config", "diff")
    assert different.code == 1
    [row] = [row for row in different.lines if row["key"] == "maxTransferCountOnMessageInMemory"]
    assert row[NAME] == "17" != row[BROKER]
    assert not {"brokerName", "listenPort", "storePathRootDir"} & {row["key"] for row in different.lines}
    assert "brokerName" in {row["key"] for row in firearrow("config", "diff", "--all").lines}
    second.kill()
    # the name server may have noticed it at once; then nothing of the broker is left to ask
    ran = firearrow("status", "--timeout", "1")
    rows = by_broker(ran.lines)
    assert not rows[BROKER]["trouble"]
    assert (ran.code == 1) is (NAME in rows)
    if NAME in rows:
        assert rows[NAME]["trouble"]
