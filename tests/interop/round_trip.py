"""A recorded store of Apache's is opened by us, used, and opened by Apache again: what must be there at the end.

`python -m tests.interop.round_trip` runs both stores and one of 4.9 with each way to end our part, and prints what was
compared.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.integration.test_transactions import COMMIT
from tests.interop import round_trip_4
from tests.interop.contents import Contents, contents, same_records
from tests.interop.files import Saved, add_members, await_saved, members_kept, not_ours
from tests.interop.peers import MARKS_AT_ONCE, Apache, FireArrow, address
from tests.interop.pending_work import Delayed, Filtered, PendingWork, Sent, SentBack, Timed, found_by
from tests.interop.pops_across import OrderedPopsAcross, PopsAcross
from tests.interop.recorded_pending import RecordedPending, timers_counted
from tests.interop.transactions_across import TransactionsAcross, assert_not_checked
from tests.support.client_socket import ClientSocket
from tests.unit.store.test_golden import Golden, assert_same
from tests.wire_golden.replay import AS_RECORDED

POPPED_S = 14, 45
"""The second on a busy machine."""
STORES, ENDS = ("store-apache", "store-apache-crashed"), ("stop", "kill")
SETTINGS = {key: value for key, value in AS_RECORDED.items() if key != "brokerIP1"} | {
    "fileReservedTime": "87600",
    "diskMaxUsedSpaceRatio": "95",
    "transactionCheckMax": "1000",
    "timerWheelEnable": "true",
    "reviveInterval": "100",
}
"""The stores were recorded long ago: nothing may be too old."""
OURS = SETTINGS | {"transactionCheckInterval": "600000", "flushConsumerOffsetInterval": "200"}
"""Open transactions stay open for Apache."""
APACHES = SETTINGS | {"transactionCheckInterval": "1000", "messageIndexSafe": "true"} | MARKS_AT_ONCE
"""After a kill Apache rebuilds the newest index file: with that setting from the first record that it had."""


def travel(store: str, end: str, folder: Path, key_step: int = 1) -> Counter[str]:
    """The whole round trip, and what was compared; of the keys every `key_step`-th. AssertionError."""
    for popped_s in POPPED_S:
        if compared := travel_while_popped(store, end, folder / f"popped-for-{popped_s}", key_step, popped_s):
            return compared
    raise AssertionError(f"Apache's broker started too late, {len(POPPED_S)} times")


def travel_while_popped(
    store: str, end: str, folder: Path, key_step: int, popped_s: int
) -> Counter[str] | None:
    """None: Apache's broker did not start within this time."""
    folder.mkdir()
    golden, compared = Golden(store, folder), Counter[str]()
    saved, unknown = Saved.of(golden.root), not_ours(golden.root)
    compared["members"] = add_members(golden.root)
    recorded_pending, transactions_across = RecordedPending(), TransactionsAcross("ours")
    popped = PopsAcross("ours", popped_s)
    pending_work: list[PendingWork] = [
        recorded_pending,
        Sent("ours"),
        Filtered("ours"),
        Delayed("ours"),
        Timed("ours"),
        SentBack("ours"),
        transactions_across,
        popped,
        OrderedPopsAcross("ours"),
    ]
    with FireArrow(golden.root, OURS) as ours, ClientSocket(address(ours.address)) as client:
        for work in pending_work:
            work.leave(client)
        left = contents(client)
        compared["messages"] = same_as_manifest(left, golden)
        same_tables(saved, left)
        if end == "stop":
            ours.stop()
        else:
            await_saved(client, golden.root)
    assert members_kept(golden.root) == compared["members"]
    assert not_ours(golden.root) == unknown
    transactions_across.halves |= dict.fromkeys(recorded_pending.halves, COMMIT)
    transactions_across.groups.add("PG_TRANSACTION")
    with Apache(golden.root, APACHES) as apache, ClientSocket(address(apache.address)) as client:
        if popped.is_over():
            return None
        now = contents(client)
        compared["records"] = same_records(left, now)
        same_tables(left, now)
        assert all(now.delays[level] >= offset for level, offset in left.delays.items())
        for work in pending_work:
            work.finish(client)
        assert_not_checked(client, transactions_across.decided)
        for work in pending_work:
            work.verify(client)
        assert timers_counted(client, "GoldenTimer") == 1 + recorded_pending.timers_waiting(client)
        compared["keys"] = keys_found(client, golden, key_step)
        apache.stop()
    return compared


def same_as_manifest(found: Contents, golden: Golden) -> int:
    """Every message of the manifest is where Apache reported it. Returns how many there are."""
    count = 0
    for topic, queue in golden.queues():
        records = found.decoded(topic, queue["queueId"])
        for record, message in zip(records, queue["messages"], strict=False):
            assert_same(record, message)
            count += 1
        assert len(records) >= len(queue["messages"])
    return count


def same_tables(was: Contents | Saved, now: Contents) -> None:
    """Topics, groups and offsets are unchanged; there may be more."""
    for before, after in ((was.topics, now.topics), (was.groups, now.groups), (was.offsets, now.offsets)):
        assert {name: after.get(name) for name in before} == before


def keys_found(client: ClientSocket, golden: Golden, step: int) -> int:
    """Keys and unique ids of the recorded messages find them. Returns how many were queried."""
    asked = [
        (topic, key, message["physicalOffset"])
        for topic, queue in golden.queues()
        for message in queue["messages"]
        for key in (*(message["keys"] or "").split(), message["properties"].get("UNIQ_KEY"))
        if topic == message["topicInRecord"] and key
    ][::step]
    for topic, key, physical_offset in asked:
        assert physical_offset in [record.physical_offset for record in found_by(client, topic, key)], (
            topic,
            key,
        )
    return len(asked)


def main() -> None:
    ways: dict[str, Callable[[str, Path], Counter[str]]] = {store: partial(travel, store) for store in STORES}
    for name, way in (ways | {"a store of 4.9": round_trip_4.travel}).items():
        for end in ENDS:
            with tempfile.TemporaryDirectory() as folder:
                compared = way(end, Path(folder))
            summary = ", ".join(f"{count} {what}" for what, count in compared.items())
            print(f"{name}, {end}: {summary}", flush=True)


if __name__ == "__main__":
    main()
