"""A recorded store of Apache's is opened by us, worked on, and opened by Apache again: what must be there at the end.

`python -m tests.interop.round_trip` takes both stores with each way to end our stay, and says what was compared.
"""

import tempfile
import time
from collections import Counter
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.fastjson import loads
from tests.interop.contents import OWN_GROUPS, Contents, contents, same_records
from tests.interop.errands import (
    Delayed,
    Errand,
    Filtered,
    Ordered,
    Paid,
    Popped,
    Sent,
    SentBack,
    Timed,
    found_by,
    ok,
)  # fmt: skip
from tests.interop.files import OFFSETS, add_members, members_kept, not_ours
from tests.interop.inherited import Inherited, timers_counted
from tests.interop.peers import MARKS_AT_ONCE, Apache, FireArrow, address
from tests.process import Connection
from tests.process.test_transactions import COMMIT
from tests.store.test_golden import Golden, assert_same
from tests.wire_golden.replay import AS_RECORDED

STORES, ENDS = ("store-apache", "store-apache-crashed"), ("stop", "kill")
SETTINGS = {key: value for key, value in AS_RECORDED.items() if key != "brokerIP1"} | {
    "fileReservedTime": "87600", "diskMaxUsedSpaceRatio": "95", "transactionCheckMax": "1000",
    "timerWheelEnable": "true", "reviveInterval": "100",
}  # fmt: skip
"""The stores are from one day and this is another: nothing may be too old."""
OURS = SETTINGS | {"transactionCheckInterval": "600000", "flushConsumerOffsetInterval": "200"}
"""What is open stays open for Apache."""
APACHES = SETTINGS | {"transactionCheckInterval": "1000"} | MARKS_AT_ONCE


def travel(store: str, end: str, folder: Path) -> Counter[str]:
    """The whole way, and what was compared. AssertionError."""
    golden, compared = Golden(store, folder), Counter[str]()
    compared["members"], offsets = add_members(golden.root), saved_offsets(golden.root)
    unknown = not_ours(golden.root)
    inherited, paid = Inherited(), Paid("ours")
    errands: list[Errand] = [
        inherited, Sent("ours"), Filtered("ours"), Delayed("ours"), Timed("ours"), SentBack("ours"), paid,
        Popped("ours"), Ordered("ours"),
    ]  # fmt: skip
    with FireArrow(golden.root, OURS) as ours, Connection(address(ours.address)) as client:
        for errand in errands:
            errand.leave(client)
        left = contents(client)
        compared["messages"] = same_as_told(left, golden)
        assert {place: left.offsets.get(place) for place in offsets} == offsets
        if end == "stop":
            ours.stop()
        else:
            await_saved(client, golden.root)
    assert members_kept(golden.root) == compared["members"]
    assert not_ours(golden.root) == unknown
    paid.halves |= dict.fromkeys(inherited.halves, COMMIT)
    paid.groups.add("PG_TRANSACTION")
    with Apache(golden.root, APACHES) as apache, Connection(address(apache.address)) as client:
        now = contents(client)
        compared["records"] = same_records(left, now)
        for was, then in ((left.topics, now.topics), (left.groups, now.groups), (left.offsets, now.offsets)):
            assert {name: then.get(name) for name in was} == was
        for errand in errands:
            errand.finish(client)
        for errand in errands:
            errand.verify(client)
        assert timers_counted(client, "GoldenTimer") == 1 + inherited.timers_waiting(client)
        compared["keys"] = keys_found(client, golden)
        apache.stop()
    return compared


def same_as_told(found: Contents, golden: Golden) -> int:
    """Every message of the manifest is where Apache said, and groups, topics and offsets are as Apache saved them."""
    count = 0
    for topic, queue in golden.queues():
        records = found.decoded(topic, queue["queueId"])
        for record, told in zip(records, queue["messages"], strict=False):
            assert_same(record, told)
            count += 1
        assert len(records) >= len(queue["messages"])
    same_tables(found, golden)
    return count


def same_tables(found: Contents, golden: Golden) -> None:
    topics, groups = (loads(golden.manifest[name]) for name in ("topicConfigs", "subscriptionGroups"))
    tables = (found.topics, topics["topicConfigTable"]), (found.groups, groups["subscriptionGroupTable"])
    for now, told in tables:
        assert {name: now.get(name) for name in told} == told


def saved_offsets(root: Path) -> dict[str, object]:
    """As Apache left them; a kill may have left the `.bak` alone."""
    file = root / "config" / OFFSETS
    document = loads((file if file.exists() else file.with_name(f"{OFFSETS}.bak")).read_bytes())
    return {
        place: value for place, value in document["offsetTable"].items() if not place.endswith(OWN_GROUPS)
    }


def await_saved(client: Connection, root: Path) -> None:
    """Until the files hold all that was done. What is noted in our journal alone, Apache cannot know: it repeats it.
    The second of two savings begins after the first has written all of its files."""
    place = {"consumerGroup": "SELF_TEST_C_GROUP", "topic": "GoldenPlain", "queueId": "0"}
    for offset in ("1", "2"):
        ok(client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": offset}))
        deadline = time.monotonic() + 20
        while loads((root / "config" / OFFSETS).read_bytes())["offsetTable"].get(
            "GoldenPlain@SELF_TEST_C_GROUP"
        ) != {"0": int(offset)}:
            assert time.monotonic() < deadline, "the offsets are not saved"
            time.sleep(0.02)


def keys_found(client: Connection, golden: Golden) -> int:
    """Each key and each unique id of the recorded messages finds them. How many were asked for."""
    count = 0
    for topic, queue in golden.queues():
        for told in queue["messages"]:
            keys = [*(told["keys"] or "").split(), told["properties"].get("UNIQ_KEY")]
            for key in filter(None, keys) if topic == told["topicInRecord"] else ():
                found = [record.physical_offset for record in found_by(client, topic, key)]
                assert told["physicalOffset"] in found, (topic, key)
                count += 1
    return count


def main() -> None:
    for store in STORES:
        for end in ENDS:
            with tempfile.TemporaryDirectory() as folder:
                compared = travel(store, end, Path(folder))
            told = ", ".join(f"{count} {what}" for what, count in compared.items())
            print(f"{store}, {end}: {told}", flush=True)


if __name__ == "__main__":
    main()
