"""A store of Apache 4.9 comes to us and goes back: messages, offsets, groups and pending work are kept, and what 4.9
does not know (timers, POP) waits until we have the store again."""

from pathlib import Path
from typing import Any

import pytest

from tests.interop.contents import Contents, contents, same_records
from tests.interop.errands import Delayed, Errand, Filtered, Ordered, Paid, Popped, Sent, SentBack, Timed
from tests.interop.peers import Apache4, FireArrow, address
from tests.interop.workshop import java_class_path, need
from tests.process import Connection

pytestmark = pytest.mark.interop

SETTINGS = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "1000",
    "maxIndexNum": "1000", "maxMessageSize": "30000", "mappedFileSizeTimerLog": "10400", "brokerName": "broker-a",
    "defaultTopicQueueNums": "4", "messageDelayLevel": "2s 6s 2h", "enableLmq": "true", "enableMultiDispatch": "true",
    "enablePropertyFilter": "true", "transactionTimeOut": "1000", "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000", "reviveInterval": "100", "recallMessageEnable": "true",
}  # fmt: skip
KNOWN = 6
"""Members of a topic or group that both know, at least."""


def known_errands(mark: str, near_level: int, decided: set[bytes]) -> list[Errand]:
    """Of what 4.9 knows, too."""
    return [
        Sent(mark), Filtered(mark), Delayed(mark, near_level, 3), SentBack(mark, near_level), Paid(mark, decided),
    ]  # fmt: skip


def same_tables(before: Contents, after: Contents) -> None:
    """Each broker knows members of a topic and a group that the other one does not."""
    for was, now in ((before.topics, after.topics), (before.groups, after.groups)):
        for name, entry in was.items():
            both: dict[str, Any] = {member: entry[member] for member in entry.keys() & now[name].keys()}
            assert len(both) >= KNOWN
            assert both == {member: now[name][member] for member in both}, name
    assert {place: after.offsets.get(place) for place in before.offsets} == before.offsets


def test_a_store_of_4_is_ours_for_a_while(tmp_path: Path) -> None:
    need(lambda: java_class_path("broker4"))
    store, decided = tmp_path / "store", set[bytes]()
    for_us, for_them, of_ours = (known_errands(f"{n}", level, decided) for n, level in enumerate((1, 2, 2)))
    unknown: list[Errand] = [Timed("ours"), Popped("ours"), Ordered("ours")]
    with Apache4(store, SETTINGS) as apache, Connection(address(apache.address)) as client:
        for errand in (*for_us, *for_them):
            errand.leave(client)
        left = contents(client)
        apache.stop()
    with FireArrow(store, SETTINGS) as ours, Connection(address(ours.address)) as client:
        now = contents(client)
        same_records(left, now)
        same_tables(left, now)
        for errand in for_us:
            errand.finish(client)
        for errand in (*of_ours, *unknown):
            errand.leave(client)
        for errand in for_us:
            errand.verify(client)
        left = contents(client)
        ours.stop()
    with Apache4(store, SETTINGS) as apache, Connection(address(apache.address)) as client:
        now = contents(client)
        assert same_records(left, now) > 60
        same_tables(left, now)
        for errand in (*for_them, *of_ours):
            errand.finish(client)
        for errand in (*for_us, *for_them, *of_ours):
            errand.verify(client)
        apache.stop()
    with FireArrow(store, SETTINGS) as ours, Connection(address(ours.address)) as client:
        for errand in unknown:
            errand.finish(client)
        for errand in (*for_us, *for_them, *of_ours, *unknown):
            errand.verify(client)
        ours.stop()
