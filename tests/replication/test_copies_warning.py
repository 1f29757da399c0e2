"""Numbers of copies that do not do what they seem to are said in the log, once."""

from dataclasses import replace
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.options import Options
from firearrow.broker.replication.log.confirmed_offset import copies_fault
from tests.replication.pairs import words
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

SYNC = replace(Options(), broker_role="SYNC_MASTER", in_sync_replicas=2, min_in_sync_replicas=2)
CONTROLLED = replace(SYNC, controller_mode=True)
UNUSED = "effect with brokerRole=ASYNC_MASTER"
ABOVE = "is above inSyncReplicas="


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            replace(SYNC, broker_role="ASYNC_MASTER"),
            "inSyncReplicas=2 and minInSyncReplicas=2 have no effect",
        ),
        (replace(Options(), min_in_sync_replicas=3), "minInSyncReplicas=3 has no effect"),
        (
            replace(SYNC, min_in_sync_replicas=3),
            "sends wait for 3 copies, and are refused while fewer than 3",
        ),
        (replace(SYNC, in_sync_replicas=1), "which is for ever without a slave: set inSyncReplicas=2"),
        (replace(SYNC, in_sync_replicas=1, min_in_sync_replicas=1), "waits for no slave"),
        (
            replace(CONTROLLED, min_in_sync_replicas=3),
            "sends wait for 2 copies, and are refused while fewer than 3",
        ),
        (
            replace(CONTROLLED, in_sync_replicas=1),
            "sends wait for no slave, and are refused while fewer than 2",
        ),
        (replace(CONTROLLED, min_in_sync_replicas=3, all_members_acknowledge=True), ""),
        (replace(SYNC, broker_role="SLAVE", min_in_sync_replicas=3), ""),
        (SYNC, ""),
        (Options(), ""),
    ],
)
def test_what_does_not_do_what_it_seems_to(options: Options, text: str) -> None:
    found = copies_fault(options)
    assert text in found
    assert bool(text) == bool(found)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_it_is_said_at_the_start_and_after_a_change(tmp_path: Path, role: str) -> None:
    wanted = UNUSED if role == "ASYNC_MASTER" else ABOVE
    settings = words({"brokerRole": role, "minInSyncReplicas": "2", "haListenPort": "0"})
    with BrokerProcess(tmp_path / "store", *settings) as broker, broker.connect() as client:

        def lines() -> int:
            return broker.log.read_text().count(wanted)

        assert lines() == 1
        for pair, count in (
            (b"slaveTimeout=4000", 1),
            (b"minInSyncReplicas=3", 2),
            (b"minInSyncReplicas=1\ninSyncReplicas=1", 2),
            (b"minInSyncReplicas=3", 3),
        ):
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=pair).code == 0
            eventually(lambda count=count: lines() == count, 5, pair.decode())  # type: ignore[misc]
