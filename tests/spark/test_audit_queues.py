"""The audit of queues, index and groups: every damage is named with its file and position."""

import json
import struct
from pathlib import Path

import pytest

from firearrow._native.store_checks.findings import Kind
from tests.spark.stores import KnownStore
from tests.spark.test_audit import ENTRY, audited, flip, only, totals
from tests.support.stores import open_store, put

# ---- queues ----------------------------------------------------------------------------------------------------------


def queue_file(root: Path, topic: str = "GoldenFill", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


@pytest.mark.parametrize(
    ("byte", "kind"),
    [(7, Kind.WRONG_ENTRY), (2, Kind.WRONG_ENTRY), (11, Kind.WRONG_ENTRY), (19, Kind.WRONG_TAGS)],
    ids=["offset", "place far away", "size", "tags"],
)
def test_a_flipped_bit_of_an_entry_is_named_once(apache: Path, byte: int, kind: Kind) -> None:
    path = queue_file(apache)
    flip(path, 7 * ENTRY + byte)
    seen = audited(apache)
    finding = only(seen, kind)
    assert (finding.where.file, finding.where.position) == (str(path), 7 * ENTRY)
    assert (finding.where.topic, finding.where.queue_id, finding.where.queue_offset) == ("GoldenFill", 0, 7)
    assert set(totals(seen)) <= {str(kind), str(Kind.QUEUE_ORDER)}


def test_records_without_entries_are_orphans(apache: Path) -> None:
    path = queue_file(apache)
    with path.open("r+b") as file:
        file.seek(5 * ENTRY)
        file.write(bytes(3 * ENTRY))
    seen = audited(apache)
    orphans, gap = only(seen, Kind.NO_ENTRY), only(seen, Kind.QUEUE_GAP)
    assert (orphans.where.file, orphans.where.position, orphans.where.count) == (str(path), 5 * ENTRY, 3)
    assert (gap.where.file, gap.where.position, gap.where.count) == (str(path), 5 * ENTRY, 3)
    assert totals(seen) == {"no queue entry": 3, "queue gap": 3}


def test_the_folder_of_a_queue_that_is_gone_leaves_orphans(apache: Path) -> None:
    path = queue_file(apache, "GoldenOneQueue", 1)
    count = audited(apache).queues["GoldenOneQueue", 1].within
    path.unlink()
    path.parent.rmdir()
    seen = audited(apache)
    orphans = only(seen, Kind.NO_ENTRY)
    assert (orphans.where.topic, orphans.where.queue_id, orphans.where.count) == ("GoldenOneQueue", 1, count)


def test_an_entry_too_many_shows_no_record(apache: Path) -> None:
    end = audited(apache).queues["GoldenFill", 0].end
    folder = queue_file(apache).parent
    base = end * ENTRY // 6000 * 6000
    path = folder / f"{base:020d}"
    with path.open("r+b") as file:
        file.seek(end * ENTRY - base)
        file.write(struct.pack(">qiq", 690_000, 300, 0))
    lost = only(audited(apache), Kind.LOST_RECORD)
    assert (lost.where.file, lost.where.position, lost.where.queue_offset) == (
        str(path),
        end * ENTRY - base,
        end,
    )


def test_a_missing_file_of_a_queue_is_a_gap(store: KnownStore, tmp_path: Path) -> None:
    root = store.copied(tmp_path)
    files = sorted((root / "consumequeue" / "Readings" / "0").iterdir())
    assert len(files) > 1
    files[0].rename(tmp_path / "gone")
    seen = audited(root)
    orphans = [each for each in seen.findings.listed if each.kind is Kind.NO_ENTRY]
    assert sum(each.where.count for each in orphans) == 100
    assert seen.queues["Readings", 0].first == 100


def test_a_folder_of_a_queue_that_cannot_be_read_is_a_finding(apache: Path) -> None:
    folder = queue_file(apache, "GoldenOneQueue", 1).parent
    (folder / "notes.txt").write_text("of mine")
    seen = audited(apache)
    finding = only(seen, Kind.UNREADABLE)
    assert finding.where.file == str(folder)
    assert "notes.txt does not belong to a store" in finding.text
    assert only(seen, Kind.NO_ENTRY).where.file == str(folder)


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
    assert (finding.where.file, finding.where.position) == (str(path), INDEX_HEAD + used * SLOT)


@pytest.mark.parametrize("byte", [3, 11, 19], ids=["hash", "offset", "previous"])
def test_a_flipped_entry_of_the_index_is_named(apache: Path, byte: int) -> None:
    path = index_file(apache)
    flip(path, index_entry(500) + byte)
    seen = audited(apache)
    there = [
        each
        for each in seen.findings.listed
        if (each.where.file, each.where.position) == (str(path), index_entry(500))
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
    assert finding.where.count >= 3
    assert Path(finding.where.file).name == f"{524288:020d}"


def test_an_index_that_is_gone_is_one_finding(apache: Path) -> None:
    for path in (apache / "index").iterdir():
        path.unlink()
    seen = audited(apache)
    assert totals(seen) == {Kind.INDEX_FILE: 1}
    assert only(seen, Kind.INDEX_FILE).where.file == str(apache / "index")
    assert seen.numbers["keys_expected"] == 0
    assert totals(audited(apache, with_index=False)) == {}


def test_a_store_without_keys_needs_no_index(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, b"body")
        store.write()
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    seen = audited(tmp_path)
    assert totals(seen) == {}
    assert seen.state == ["it has no index files: keys were not checked"]


def test_an_index_that_was_cut_at_its_beginning_is_judged_from_there_on(apache: Path) -> None:
    index_file(apache).unlink()
    seen = audited(apache)
    assert totals(seen) == {}
    assert seen.state == [f"{seen.numbers['keys_outside']} keys of records that the index does not cover"]
    assert seen.numbers["keys_outside"] + seen.numbers["keys_found"] == seen.numbers["keys_expected"]


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
    assert (finding.where.topic, finding.where.queue_id, finding.where.queue_offset) == (
        "Orders",
        1,
        count + 5,
    )
    assert finding.where.file == str(root / "config" / "consumerOffset.json")
