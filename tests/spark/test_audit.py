"""The audit of stores as files: clean ones have no findings, and every damage is named with its file and place."""

import json
import os
import struct
import threading
from collections import Counter
from pathlib import Path

import pytest

from firearrow._native.audit.auditing import Auditing, HereLane, StoreSeen
from firearrow._native.audit.findings import Finding, Kind
from firearrow._native.audit.store import AuditedStore
from firearrow.client import blocking
from firearrow.client.local_broker import LocalBroker
from firearrow.client.message import Message
from firearrow.spark_tools.audit.stores import stores_of
from firearrow.spark_tools.errors import OptionWrong, StoreUnreadable
from firearrow.spark_tools.offline.config import group_offsets
from tests.spark.record_bytes import record_bytes
from tests.spark.stores import SETTINGS, TOPICS, Golden, KnownStore, send_known
from tests.store.stores import open_store, put

ENTRY = 20


def audited(
    root: Path, *, range_bytes: int = 128 << 20, width: int = 4, with_index: bool = True
) -> StoreSeen:
    store = AuditedStore(root.name, str(root))
    return Auditing(
        store, HereLane(width), group_offsets, range_bytes=range_bytes, with_index=with_index
    ).run()


def only(seen: StoreSeen, kind: Kind) -> Finding:
    """The one finding of the kind."""
    [finding] = [each for each in seen.findings.listed if each.kind is kind]
    return finding


def totals(seen: StoreSeen) -> dict[str, int]:
    return dict(seen.findings.totals)


def flip(path: Path, position: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        [byte] = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def files_of(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and path.name != "timerwheel"
    }


@pytest.fixture
def apache(golden_copy: Golden) -> Path:
    """A copy of the store that Apache closed, to be damaged."""
    return golden_copy.root


# ---- stores without damage -------------------------------------------------------------------------------------------


def test_an_apache_store_has_no_findings_and_what_its_manifest_says(golden: Golden) -> None:
    before = files_of(golden.root)
    seen = audited(golden.root)
    assert totals(seen) == {}
    messages = {
        (topic, queue["queueId"]): queue for topic, queue in golden.queues() if queue["maxOffset"] > 0
    }
    for name, queue in messages.items():
        assert seen.queues[name].end == queue["minOffset"] + len(queue["messages"]), name
        assert seen.queues[name].first == queue["minOffset"], name
        assert seen.queues[name].within == len(queue["messages"]), name
    records = {told["physicalOffset"]: told for queue in messages.values() for told in queue["messages"]}
    assert seen.numbers["records"] == len(records)
    assert seen.numbers["log_bytes"] == sum(told["storeSize"] for told in records.values())
    assert files_of(golden.root) == before


def test_an_apache_store_is_counted_as_its_manifest_says(golden: Golden) -> None:
    tallies = audited(golden.root).tallies
    records = {told["physicalOffset"]: told for _, queue in golden.queues() for told in queue["messages"]}
    queues = Counter((told["topicInRecord"], told["queueIdInRecord"]) for told in records.values())
    assert {key: row[0] for key, row in tallies.queues.rows.items()} == dict(queues)
    tags = Counter((told["topicInRecord"], told["tags"]) for told in records.values() if told.get("tags"))
    assert {key: row[0] for key, row in tallies.tags.rows.items()} == dict(tags)
    hours = Counter((told["storeTimestamp"] // 3_600_000,) for told in records.values())
    assert {key: row[0] for key, row in tallies.hours.rows.items()} == dict(hours)
    hosts = Counter((told["bornHost"].rpartition(":")[0],) for told in records.values())
    assert {key: row[0] for key, row in tallies.hosts.rows.items()} == dict(hosts)
    assert sum(row[1] for row in tallies.queues.rows.values()) == sum(
        told["storeSize"] for told in records.values()
    )


@pytest.mark.parametrize(("range_bytes", "width"), [(100_000, 3), (5_000, 60), (997, 1000), (262_144, 2)])
def test_a_log_cut_anywhere_loses_nothing_and_counts_nothing_twice(
    golden: Golden, range_bytes: int, width: int
) -> None:
    whole, parted = audited(golden.root), audited(golden.root, range_bytes=range_bytes, width=width)
    assert parted.findings.totals == whole.findings.totals
    for name in ("records", "log_bytes", "keys_found", "tags_found", "blanks"):
        assert parted.numbers[name] == whole.numbers[name], name
    assert parted.tallies == whole.tallies
    assert parted.queues == whole.queues
    assert parted.log == whole.log


def test_a_store_of_ours_has_no_findings(store: KnownStore) -> None:
    seen = audited(store.root)
    assert totals(seen) == {}
    assert seen.state == []
    messages = seen.tallies.topics().rows
    for topic in TOPICS:
        assert messages[(topic,)][0] == len(store.of(topic))
    assert seen.numbers["keys_found"] == seen.numbers["keys_told"] > len(store.messages)


def test_a_store_that_a_broker_writes_has_no_findings(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "live", settings=SETTINGS) as broker:
        send_known(broker.name_server, 20)
        seen = audited(broker.store)
    assert totals(seen) == {}
    assert seen.state == ["a broker is running: judged up to the end of the log when the audit began"]
    assert seen.numbers["records"] >= 20 * sum(TOPICS.values())


def test_a_store_that_grows_meanwhile_has_no_findings(tmp_path: Path) -> None:
    """The index lies behind the log by a moment, and so may queues: neither is held against the store."""
    enough = threading.Event()

    def send(name_server: str) -> None:
        with blocking.Producer("growing", name_server=name_server) as producer:
            number = 0
            while not enough.is_set():
                number += 1
                producer.send(
                    Message("Growing", b"x" * (number % 900), tags="t", keys=(f"k{number}",))
                ).raise_for_status()

    with LocalBroker(tmp_path / "grows", settings=SETTINGS) as broker:
        sender = threading.Thread(target=send, args=(broker.name_server,))
        sender.start()
        try:
            counts = []
            while len(counts) < 8 or len(set(counts)) < 4:
                seen = audited(broker.store, range_bytes=50_000, width=5)
                assert totals(seen) == {}
                counts.append(seen.numbers["records"])
        finally:
            enough.set()
            sender.join()
    assert counts == sorted(counts)
    assert audited(broker.store).numbers["records"] > counts[-1] - 1


def test_a_store_that_was_killed_is_said_to_be(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "killed", settings=SETTINGS)
    try:
        send_known(broker.name_server, 10)
    finally:
        broker.kill()
    seen = audited(broker.store)
    assert totals(seen) == {}
    assert seen.state == ["the broker was not stopped cleanly: its next start looks at the end of the log"]


@pytest.mark.parametrize("range_bytes", [150, 200, 250, 333])
def test_a_body_that_looks_like_a_record_of_its_place_is_none(tmp_path: Path, range_bytes: int) -> None:
    root = tmp_path / "forged"
    with open_store(root, segment_bytes=65536, index_slots=10, index_entries=20) as opened:
        put(opened, b"first")
        opened.write()
        first = audited(root).log.end
        forged = first + 88 + 200
        body = bytes(200) + record_bytes(b"y" * 50, topic="Forged", physical_offset=forged) + bytes(100)
        put(opened, body)
        put(opened, b"last")
        opened.write()
    for width in (1, 2, 500):
        seen = audited(root, range_bytes=range_bytes, width=width)
        assert totals(seen) == {}
        assert seen.tallies.queues.rows.keys() == {("T", 0)}
        assert seen.numbers["records"] == 3


# ---- the log ---------------------------------------------------------------------------------------------------------


def a_record(root: Path, number: int = 100) -> tuple[Path, int, int, int]:
    """(file, position, body's position, size) of a record somewhere in the first segment."""
    path = root / "commitlog" / f"{0:020d}"
    data, at = path.read_bytes(), 0
    for _ in range(number):
        at += struct.unpack_from(">i", data, at)[0]
    while struct.unpack_from(">i", data, at + 84)[0] == 0:
        at += struct.unpack_from(">i", data, at)[0]
    return path, at, at + 88, struct.unpack_from(">i", data, at)[0]


def test_a_flipped_bit_of_a_body_is_a_bad_crc(apache: Path) -> None:
    path, at, body, size = a_record(apache)
    flip(path, body)
    seen = audited(apache)
    assert totals(seen) == {"bad CRC": 1}
    finding = only(seen, Kind.BAD_CRC)
    assert (finding.file, finding.position, finding.physical_offset, finding.bytes) == (
        str(path),
        at,
        at,
        size,
    )


def test_without_crc_a_flipped_bit_of_a_body_is_not_seen(apache: Path) -> None:
    path, _, body, _ = a_record(apache)
    flip(path, body)
    store = AuditedStore("a", str(apache))
    assert not Auditing(store, HereLane(), group_offsets, check_crc=False).run().findings


@pytest.mark.parametrize("field", [0, 4, 28], ids=["size", "magic", "physical offset"])
def test_a_broken_head_costs_one_record_and_its_entry_is_named(apache: Path, field: int) -> None:
    path, at, _, size = a_record(apache)
    flip(path, at + field + 3)
    seen = audited(apache)
    torn = only(seen, Kind.TORN)
    assert (torn.file, torn.position, torn.bytes) == (str(path), at, size)
    lost = only(seen, Kind.LOST_RECORD)
    assert lost.physical_offset == at
    assert Path(lost.file).is_file()
    kept = {str(Kind.TORN), str(Kind.LOST_RECORD), str(Kind.WRONG_KEY)}
    assert set(totals(seen)) <= kept
    assert totals(seen)[str(Kind.TORN)] == totals(seen)[str(Kind.LOST_RECORD)] == 1


@pytest.mark.parametrize("range_bytes", [128 << 20, 20_000, 300])
@pytest.mark.parametrize("segment", [0, 262_144])
def test_a_segment_that_begins_with_no_record_is_torn_there(
    apache: Path, segment: int, range_bytes: int
) -> None:
    path = apache / "commitlog" / f"{segment:020d}"
    size = struct.unpack(">i", path.read_bytes()[:4])[0]
    flip(path, 5)
    torn = only(audited(apache, range_bytes=range_bytes, width=1000), Kind.TORN)
    assert (torn.file, torn.position, torn.bytes) == (str(path), 0, size)


def test_a_torn_tail_far_behind_the_end_is_found_where_the_log_ends(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    end = audited(apache).log.end - 524288
    with path.open("r+b") as file:
        file.seek(262_144 - 10)
        file.write(b"left over")
    for range_bytes in (128 << 20, 30_000):
        seen = audited(apache, range_bytes=range_bytes, width=100)
        assert totals(seen) == {"torn tail": 1}
        assert only(seen, Kind.TORN_TAIL).position == end


def test_zeros_inside_the_log_are_a_hole(apache: Path) -> None:
    path, at, _, size = a_record(apache)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))
    hole = only(audited(apache, with_index=False), Kind.HOLE)
    assert (hole.file, hole.position, hole.bytes) == (str(path), at, size)


def test_a_missing_segment_is_named_with_the_entries_that_show_it(apache: Path, golden_copy: Golden) -> None:
    path = apache / "commitlog" / f"{262144:020d}"
    gone = sum(
        262144 <= told["physicalOffset"] < 524288
        for _, queue in golden_copy.queues()
        for told in queue["messages"]
    )
    path.unlink()
    seen = audited(apache)
    missing = only(seen, Kind.MISSING_SEGMENT)
    assert (missing.file, missing.bytes) == (str(path), 262144)
    lost = [each for each in seen.findings.listed if each.kind is Kind.LOST_RECORD]
    assert seen.findings.totals[str(Kind.LOST_RECORD)] == gone
    assert sum(each.count for each in lost) == seen.findings.totals[str(Kind.LOST_RECORD)]
    assert all(each.physical_offset is not None and 262144 <= each.physical_offset < 524288 for each in lost)


def test_a_cut_tail_is_named_and_what_pointed_there(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    whole = audited(apache)
    end = whole.log.end - 524288
    with path.open("r+b") as file:
        file.truncate(end - 10)
    seen = audited(apache)
    cut = only(seen, Kind.CUT_FILE)
    assert (cut.file, cut.position) == (str(path), end - 10)
    torn = only(seen, Kind.TORN_TAIL)
    assert torn.file == str(path)
    assert torn.position + torn.bytes == end - 10
    assert only(seen, Kind.LOST_RECORD).physical_offset == 524288 + torn.position
    assert seen.numbers["records"] == whole.numbers["records"] - 1


def test_bytes_behind_the_end_are_a_torn_tail(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    end = audited(apache).log.end - 524288
    with path.open("r+b") as file:
        file.seek(end)
        file.write(struct.pack(">iI", 500, 0xDAA320A7) + b"half of a record")
    seen = audited(apache, range_bytes=50_000, width=10)
    assert totals(seen) == {"torn tail": 1}
    assert only(seen, Kind.TORN_TAIL).position == end


# ---- queues ----------------------------------------------------------------------------------------------------------


def queue_file(root: Path, topic: str = "GoldenFill", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


@pytest.mark.parametrize(
    ("byte", "kind"),
    [(7, Kind.WRONG_ENTRY), (2, Kind.WRONG_ENTRY), (11, Kind.WRONG_ENTRY), (19, Kind.WRONG_TAGS)],
    ids=["place", "place far away", "size", "tags"],
)
def test_a_flipped_bit_of_an_entry_is_named_once(apache: Path, byte: int, kind: Kind) -> None:
    path = queue_file(apache)
    flip(path, 7 * ENTRY + byte)
    seen = audited(apache)
    finding = only(seen, kind)
    assert (finding.file, finding.position) == (str(path), 7 * ENTRY)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("GoldenFill", 0, 7)
    assert set(totals(seen)) <= {str(kind), str(Kind.QUEUE_ORDER)}


def test_records_without_entries_are_orphans(apache: Path) -> None:
    path = queue_file(apache)
    with path.open("r+b") as file:
        file.seek(5 * ENTRY)
        file.write(bytes(3 * ENTRY))
    seen = audited(apache)
    orphans, gap = only(seen, Kind.NO_ENTRY), only(seen, Kind.QUEUE_GAP)
    assert (orphans.file, orphans.position, orphans.count) == (str(path), 5 * ENTRY, 3)
    assert (gap.file, gap.position, gap.count) == (str(path), 5 * ENTRY, 3)
    assert totals(seen) == {"no queue entry": 3, "queue gap": 3}


def test_the_folder_of_a_queue_that_is_gone_leaves_orphans(apache: Path) -> None:
    path = queue_file(apache, "GoldenOneQueue", 1)
    count = audited(apache).queues["GoldenOneQueue", 1].within
    path.unlink()
    path.parent.rmdir()
    seen = audited(apache)
    orphans = only(seen, Kind.NO_ENTRY)
    assert (orphans.topic, orphans.queue_id, orphans.count) == ("GoldenOneQueue", 1, count)


def test_an_entry_too_many_shows_no_record(apache: Path) -> None:
    end = audited(apache).queues["GoldenFill", 0].end
    folder = queue_file(apache).parent
    base = end * ENTRY // 6000 * 6000
    path = folder / f"{base:020d}"
    with path.open("r+b") as file:
        file.seek(end * ENTRY - base)
        file.write(struct.pack(">qiq", 690_000, 300, 0))
    lost = only(audited(apache), Kind.LOST_RECORD)
    assert (lost.file, lost.position, lost.queue_offset) == (str(path), end * ENTRY - base, end)


def test_a_missing_file_of_a_queue_is_a_gap(store: KnownStore, tmp_path: Path) -> None:
    root = store.copied(tmp_path)
    files = sorted((root / "consumequeue" / "Readings" / "0").iterdir())
    assert len(files) > 1
    files[0].rename(tmp_path / "gone")
    seen = audited(root)
    orphans = [each for each in seen.findings.listed if each.kind is Kind.NO_ENTRY]
    assert sum(each.count for each in orphans) == 100
    assert seen.queues["Readings", 0].first == 100


def test_a_folder_of_a_queue_that_cannot_be_read_is_a_finding(apache: Path) -> None:
    folder = queue_file(apache, "GoldenOneQueue", 1).parent
    (folder / "notes.txt").write_text("of mine")
    seen = audited(apache)
    finding = only(seen, Kind.UNREADABLE)
    assert finding.file == str(folder)
    assert "notes.txt is no file of a store" in finding.text
    assert only(seen, Kind.NO_ENTRY).file == str(folder)


# ---- the index -------------------------------------------------------------------------------------------------------

INDEX_SLOTS, SLOT, INDEX_HEAD = 1000, 4, 40


def index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


def index_entry(number: int) -> int:
    return INDEX_HEAD + INDEX_SLOTS * SLOT + number * ENTRY


def test_a_flipped_slot_of_the_index_is_named(apache: Path) -> None:
    path = index_file(apache)
    data = path.read_bytes()
    used = next(n for n in range(INDEX_SLOTS) if struct.unpack_from(">i", data, INDEX_HEAD + n * SLOT)[0])
    flip(path, INDEX_HEAD + used * SLOT + 3)
    seen = audited(apache)
    assert totals(seen) == {"index slot": 1}
    finding = only(seen, Kind.INDEX_SLOT)
    assert (finding.file, finding.position) == (str(path), INDEX_HEAD + used * SLOT)


@pytest.mark.parametrize("byte", [3, 11, 19], ids=["hash", "place", "previous"])
def test_a_flipped_entry_of_the_index_is_named(apache: Path, byte: int) -> None:
    path = index_file(apache)
    flip(path, index_entry(500) + byte)
    seen = audited(apache)
    there = [
        each for each in seen.findings.listed if (each.file, each.position) == (str(path), index_entry(500))
    ]
    assert there
    others = set(totals(seen)) - {
        "wrong index entry",
        "key not in index",
        "index chain",
        "index slot",
        "index order",
    }
    assert not others
    assert seen.findings.totals.total() <= 5


def test_keys_that_the_index_lost_are_named_by_their_records(apache: Path) -> None:
    path = max((apache / "index").iterdir())
    count = struct.unpack_from(">i", path.read_bytes(), 36)[0]
    with path.open("r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", count - 10))
    seen = audited(apache)
    finding = only(seen, Kind.NO_KEY)
    assert finding.count >= 3
    assert Path(finding.file).name == f"{524288:020d}"


def test_a_store_without_index_is_judged_without_it(apache: Path) -> None:
    for path in (apache / "index").iterdir():
        path.unlink()
    seen = audited(apache)
    assert totals(seen) == {}
    assert seen.state == ["it has no index files: keys were not checked"]
    assert seen.numbers["keys_told"] == 0


def test_an_index_that_was_cut_at_its_beginning_is_judged_from_there_on(apache: Path) -> None:
    index_file(apache).unlink()
    seen = audited(apache)
    assert totals(seen) == {}
    assert seen.state == [f"{seen.numbers['keys_outside']} keys of records that the index does not reach"]
    assert seen.numbers["keys_outside"] + seen.numbers["keys_found"] == seen.numbers["keys_told"]


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_the_lag_of_groups_is_counted_and_an_offset_beyond_the_end_is_found(
    store: KnownStore, tmp_path: Path
) -> None:
    root = store.copied(tmp_path)
    count = len(store.in_queue("Orders", 1))
    offsets = {"Orders@behind": {"0": 3}, "Orders@ahead": {"1": count + 5}, "Nowhere@lost": {"0": 9}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    seen = audited(root)
    by_group = {lag.group: lag for lag in seen.lags}
    assert by_group["behind"].lag == len(store.in_queue("Orders", 0)) - 3
    assert by_group["ahead"].lag == 0
    assert "lost" not in by_group
    finding = only(seen, Kind.OFFSET_BEYOND)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("Orders", 1, count + 5)
    assert finding.file == str(root / "config" / "consumerOffset.json")


# ---- paths -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="is no store: it has no folder commitlog"):
        audited(tmp_path)


def test_stores_have_names_of_their_own(tmp_path: Path) -> None:
    found = stores_of((str(tmp_path / "one"), f"two={tmp_path}/one"))
    assert [(store.name, store.root) for store in found] == [
        ("one", os.fspath(tmp_path / "one")), ("two", os.fspath(tmp_path / "one")),
    ]  # fmt: skip
    with pytest.raises(OptionWrong, match="two stores are called 'one'"):
        stores_of((str(tmp_path / "one"), str(tmp_path / "x" / "one")))
