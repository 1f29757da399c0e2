"""The audit of stores as files: clean ones have no findings, and every damage is named with file and position."""

import os
import struct
import threading
from collections import Counter
from pathlib import Path

import pytest

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.audit import SerialExecutor, StoreAudit, StoreResult
from firearrow._native.store_checks.findings import Kind, StoreFinding
from firearrow._native.store_checks.small_files import unusable_config_files
from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import InvalidOption, StoreUnreadable
from firearrow.spark_tools.jobs.audit.audit import stores_of
from tests.spark.record_bytes import record_bytes
from tests.spark.stores import SETTINGS, TOPICS, Golden, KnownStore, send_known
from tests.support.stores import open_store, put

ENTRY = 20


def audited(
    root: Path, *, range_bytes: int = 128 << 20, width: int = 4, with_index: bool = True
) -> StoreResult:
    store = StoreFolder(root.name, str(root))
    return StoreAudit(store, SerialExecutor(width), range_bytes=range_bytes, with_index=with_index).run()


def only(seen: StoreResult, kind: Kind) -> StoreFinding:
    """The one finding of the kind."""
    [finding] = [each for each in seen.findings.listed if each.kind is kind]
    return finding


def totals(seen: StoreResult) -> dict[str, int]:
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
    records = {
        message["physicalOffset"]: message for queue in messages.values() for message in queue["messages"]
    }
    assert seen.numbers["records"] == len(records)
    assert seen.numbers["log_bytes"] == sum(message["storeSize"] for message in records.values())
    assert files_of(golden.root) == before


def test_an_apache_store_is_counted_as_its_manifest_says(golden: Golden) -> None:
    tallies = audited(golden.root).counts
    records = {
        message["physicalOffset"]: message for _, queue in golden.queues() for message in queue["messages"]
    }
    queues = Counter((message["topicInRecord"], message["queueIdInRecord"]) for message in records.values())
    assert {key: row[0] for key, row in tallies.queues.rows.items()} == dict(queues)
    tags = Counter(
        (message["topicInRecord"], message["tags"]) for message in records.values() if message.get("tags")
    )
    assert {key: row[0] for key, row in tallies.tags.rows.items()} == dict(tags)
    hours = Counter((message["storeTimestamp"] // 3_600_000,) for message in records.values())
    assert {key: row[0] for key, row in tallies.hours.rows.items()} == dict(hours)
    hosts = Counter((message["bornHost"].rpartition(":")[0],) for message in records.values())
    assert {key: row[0] for key, row in tallies.hosts.rows.items()} == dict(hosts)
    assert sum(row[1] for row in tallies.queues.rows.values()) == sum(
        message["storeSize"] for message in records.values()
    )


@pytest.mark.parametrize(("range_bytes", "width"), [(100_000, 3), (5_000, 60), (997, 1000), (262_144, 2)])
def test_a_log_cut_anywhere_loses_nothing_and_counts_nothing_twice(
    golden: Golden, range_bytes: int, width: int
) -> None:
    whole, parted = audited(golden.root), audited(golden.root, range_bytes=range_bytes, width=width)
    assert parted.findings.totals == whole.findings.totals
    for name in ("records", "log_bytes", "keys_found", "tags_found", "blanks"):
        assert parted.numbers[name] == whole.numbers[name], name
    assert parted.counts == whole.counts
    assert parted.queues == whole.queues
    assert parted.log == whole.log


def test_a_store_of_ours_has_no_findings(store: KnownStore) -> None:
    seen = audited(store.root)
    assert totals(seen) == {}
    assert seen.state == []
    messages = seen.counts.topics().rows
    for topic in TOPICS:
        assert messages[(topic,)][0] == len(store.of(topic))
    assert seen.numbers["keys_found"] == seen.numbers["keys_expected"] > len(store.messages)


def test_a_store_that_a_broker_writes_has_no_findings(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "live", settings=SETTINGS) as broker:
        send_known(broker.name_server, 20)
        seen = audited(broker.store)
    assert totals(seen) == {}
    assert seen.state == ["a broker is running: checked up to where the log ended when the audit began"]
    assert seen.numbers["records"] >= 20 * sum(TOPICS.values())


def test_a_store_that_grows_meanwhile_has_no_findings(tmp_path: Path) -> None:
    """The index and the queues may lag the log for a moment: neither is a finding."""
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


def test_a_store_that_was_killed_is_reported_as_such(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "killed", settings=SETTINGS)
    try:
        send_known(broker.name_server, 10)
    finally:
        broker.kill()
    seen = audited(broker.store)
    assert totals(seen) == {}
    assert seen.state == ["the broker was not stopped cleanly: its next start checks the end of the log"]


@pytest.mark.parametrize("range_bytes", [150, 200, 250, 333])
def test_a_body_that_looks_like_a_record_at_its_offset_is_none(tmp_path: Path, range_bytes: int) -> None:
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
        assert seen.counts.queues.rows.keys() == {("T", 0)}
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
    assert (
        finding.where.file,
        finding.where.position,
        finding.where.physical_offset,
        finding.where.bytes,
    ) == (
        str(path),
        at,
        at,
        size,
    )


def test_without_crc_a_flipped_bit_of_a_body_is_not_seen(apache: Path) -> None:
    path, _, body, _ = a_record(apache)
    flip(path, body)
    store = StoreFolder("a", str(apache))
    assert not StoreAudit(store, SerialExecutor(), check_crc=False).run().findings


@pytest.mark.parametrize("field", [0, 4, 28], ids=["size", "magic", "physical offset"])
def test_a_broken_head_costs_one_record_and_its_entry_is_named(apache: Path, field: int) -> None:
    path, at, _, size = a_record(apache)
    flip(path, at + field + 3)
    seen = audited(apache)
    torn = only(seen, Kind.TORN)
    assert (torn.where.file, torn.where.position, torn.where.bytes) == (str(path), at, size)
    lost = only(seen, Kind.LOST_RECORD)
    assert lost.where.physical_offset == at
    assert Path(lost.where.file).is_file()
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
    assert (torn.where.file, torn.where.position, torn.where.bytes) == (str(path), 0, size)


def test_a_torn_tail_far_past_the_end_is_found_where_the_log_ends(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    end = audited(apache).log.end - 524288
    with path.open("r+b") as file:
        file.seek(262_144 - 10)
        file.write(b"left over")
    for range_bytes in (128 << 20, 30_000):
        seen = audited(apache, range_bytes=range_bytes, width=100)
        assert totals(seen) == {"torn tail": 1}
        assert only(seen, Kind.TORN_TAIL).where.position == end


def test_zeros_inside_the_log_are_a_hole(apache: Path) -> None:
    path, at, _, size = a_record(apache)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))
    hole = only(audited(apache, with_index=False), Kind.HOLE)
    assert (hole.where.file, hole.where.position, hole.where.bytes) == (str(path), at, size)


def test_a_missing_segment_is_named_with_the_entries_that_show_it(apache: Path, golden_copy: Golden) -> None:
    path = apache / "commitlog" / f"{262144:020d}"
    gone = sum(
        262144 <= message["physicalOffset"] < 524288
        for _, queue in golden_copy.queues()
        for message in queue["messages"]
    )
    path.unlink()
    seen = audited(apache)
    missing = only(seen, Kind.MISSING_SEGMENT)
    assert (missing.where.file, missing.where.bytes) == (str(path), 262144)
    lost = [each for each in seen.findings.listed if each.kind is Kind.LOST_RECORD]
    assert seen.findings.totals[str(Kind.LOST_RECORD)] == gone
    assert sum(each.where.count for each in lost) == seen.findings.totals[str(Kind.LOST_RECORD)]
    assert all(262144 <= (each.where.physical_offset or 0) < 524288 for each in lost)


def test_a_cut_tail_is_named_and_what_pointed_there(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    whole = audited(apache)
    end = whole.log.end - 524288
    with path.open("r+b") as file:
        file.truncate(end - 10)
    seen = audited(apache)
    cut = only(seen, Kind.CUT_FILE)
    assert (cut.where.file, cut.where.position) == (str(path), end - 10)
    torn = only(seen, Kind.TORN_TAIL)
    assert torn.where.file == str(path)
    assert torn.where.position + torn.where.bytes == end - 10
    assert only(seen, Kind.LOST_RECORD).where.physical_offset == 524288 + torn.where.position
    assert seen.numbers["records"] == whole.numbers["records"] - 1


def test_bytes_past_the_end_are_a_torn_tail(apache: Path) -> None:
    path = apache / "commitlog" / f"{524288:020d}"
    end = audited(apache).log.end - 524288
    with path.open("r+b") as file:
        file.seek(end)
        file.write(struct.pack(">iI", 500, 0xDAA320A7) + b"half of a record")
    seen = audited(apache, range_bytes=50_000, width=10)
    assert totals(seen) == {"torn tail": 1}
    assert only(seen, Kind.TORN_TAIL).where.position == end


# ---- paths -----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="is not a store: it has no folder commitlog"):
        audited(tmp_path)


def test_stores_have_separate_names(tmp_path: Path) -> None:
    found = stores_of((str(tmp_path / "one"), f"two={tmp_path}/one"))
    assert [(store.name, store.root) for store in found] == [
        ("one", os.fspath(tmp_path / "one")),
        ("two", os.fspath(tmp_path / "one")),
    ]
    with pytest.raises(InvalidOption, match="two stores are named 'one'"):
        stores_of((str(tmp_path / "one"), str(tmp_path / "x" / "one")))


def test_configs_that_cannot_be_used_are_found(apache: Path) -> None:
    store, config = StoreFolder("apache", str(apache)), apache / "config"
    assert not list(unusable_config_files(store))
    (config / "topics.json").write_text('{"topicConfigTable": {')
    (config / "consumerOffset.json").write_bytes(b"")
    (config / "delayOffset.json").write_text("[]")
    found = {Path(each.where.file).name: each.text for each in unusable_config_files(store)}
    assert found.pop("topics.json").startswith("it cannot be read: ")
    assert found == {"consumerOffset.json": "it is empty", "delayOffset.json": "it is not a JSON object"}
    (config / "topics.json").unlink()
    found = {each.where.file: each.text for each in unusable_config_files(store)}
    assert found[str(config / "topics.json")] == "it is missing, but there are queues"
