"""A store of Apache 4.9 is opened by us, by 4.9, and by us again: messages, offsets, groups and pending work are kept,
and what 4.9 does not support (timers, POP) waits until we have the store again.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.interop.contents import Contents, contents, same_records
from tests.interop.files import await_saved
from tests.interop.peers import Apache4, FireArrow, address
from tests.interop.pending_work import Delayed, Filtered, PendingWork, Sent, SentBack, Timed
from tests.interop.pops_across import OrderedPopsAcross, PopsAcross
from tests.interop.transactions_across import TransactionsAcross, assert_not_checked
from tests.support.client_socket import ClientSocket

SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "1000",
    "maxMessageSize": "30000",
    "mappedFileSizeTimerLog": "10400",
    "brokerName": "broker-a",
    "defaultTopicQueueNums": "4",
    "messageDelayLevel": "2s 6s 2h",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
    "reviveInterval": "100",
    "recallMessageEnable": "true",
}
OURS = SETTINGS | {"flushConsumerOffsetInterval": "200"}
APACHES = SETTINGS | {"messageIndexSafe": "true"}
KNOWN = 6
"""Members of a topic or group that both know, at least."""


def known_pending_work(mark: str, near_level: int, decided: set[bytes]) -> list[PendingWork]:
    """Of what 4.9 knows, too."""
    return [
        Sent(mark),
        Filtered(mark),
        Delayed(mark, near_level, 3),
        SentBack(mark, near_level),
        TransactionsAcross(mark, decided),
    ]


def came_with(before: Contents, after: Contents) -> int:
    """Nothing has changed; each broker knows members of a topic and a group that the other one does not. Returns how
    many records were compared."""
    for was, now in ((before.topics, after.topics), (before.groups, after.groups)):
        for name, entry in was.items():
            both: dict[str, Any] = {member: entry[member] for member in entry.keys() & now[name].keys()}
            assert len(both) >= KNOWN
            assert both == {member: now[name][member] for member in both}, name
    assert {key: after.offsets.get(key) for key in before.offsets} == before.offsets
    return same_records(before, after)


def travel(end: str, folder: Path) -> Counter[str]:
    """The whole round trip, and what was compared. `end`: how our broker ends, `stop` or `kill`. AssertionError."""
    store, decided, compared = folder / "store", set[bytes](), Counter[str]()
    for_us, for_them, of_ours = (
        known_pending_work(f"{n}", level, decided) for n, level in enumerate((1, 2, 2))
    )
    unknown: list[PendingWork] = [Timed("ours"), PopsAcross("ours"), OrderedPopsAcross("ours")]
    with Apache4(store, APACHES) as apache, ClientSocket(address(apache.address)) as client:
        for work in (*for_us, *for_them):
            work.leave(client)
        left = contents(client)
        apache.stop()
    with FireArrow(store, OURS) as ours, ClientSocket(address(ours.address)) as client:
        compared["records"] += came_with(left, contents(client))
        for work in for_us:
            work.finish(client)
        assert_not_checked(client, decided)
        for work in (*of_ours, *unknown):
            work.leave(client)
        for work in for_us:
            work.verify(client)
        left = contents(client)
        ours.stop() if end == "stop" else await_saved(client, store)
    with Apache4(store, APACHES) as apache, ClientSocket(address(apache.address)) as client:
        compared["records"] += came_with(left, contents(client))
        for work in (*for_them, *of_ours):
            work.finish(client)
        assert_not_checked(client, decided)
        for work in (*for_us, *for_them, *of_ours):
            work.verify(client)
        left = contents(client)
        apache.stop()
    with FireArrow(store, OURS) as ours, ClientSocket(address(ours.address)) as client:
        compared["records"] += came_with(left, contents(client))
        for work in unknown:
            work.finish(client)
        for work in (*for_us, *for_them, *of_ours, *unknown):
            work.verify(client)
        ours.stop()
    return compared
