"""`firearrow store` with the queues of BatchCQ topics: checked, repaired, dumped, copied."""

import struct
from pathlib import Path

import pytest

from firearrow._native.offline.queue_reader import BATCH_ENTRY, ENTRY, PRE_BLANK_SIZE, Entry, reader_of
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.findings import Kind
from firearrow.broker.maintenance.verify import verify
from firearrow.client.cli.doctor import store_samples
from tests.maintenance.tool import run
from tests.support.stores import item, open_store, properties_of, put, read

INNER_BATCH = 0xC0
COUNTS = [1, 3, 2, 1, 4] * 8
FILE_BYTES = 10 * BATCH_ENTRY.size


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a batch queue of several files, and a plain one."""
    root = tmp_path / "store"
    with open_store(root, batch_queue_file_bytes=FILE_BYTES) as store:
        store.set_batch_topic("B", True)
        for number, count in enumerate(COUNTS):
            put(store, b"plain")
            base = str(max(store.next_offset("B", 0), 0))
            properties = properties_of(INNER_NUM=str(count), INNER_BASE=base, TAGS=f"t{number % 3}")
            body = b"".join([item(b"%d" % number)] * count)
            if count == 1:
                put(store, b"%d" % number, "B", properties=properties_of(TAGS="t"))
            else:
                put(store, body, "B", properties=properties, sys_flag=INNER_BATCH)
            store.write()
    return root


def queue(root: Path) -> Path:
    return root / "batchconsumequeue" / "B" / "0"


def damage(root: Path, batch: int, at: int, data: bytes) -> None:
    file = queue(root) / f"{batch * BATCH_ENTRY.size // FILE_BYTES * FILE_BYTES:020d}"
    with file.open("r+b") as opened:
        opened.seek(batch * BATCH_ENTRY.size % FILE_BYTES + at)
        opened.write(data)


def kinds(root: Path) -> set[Kind]:
    return {each.kind for each in verify(str(root)).findings}


def test_a_reader_shows_a_batch_at_its_first_offset(root: Path) -> None:
    reader = reader_of(str(queue(root)))
    reader.refresh()
    assert (reader.first, reader.end()) == (0, sum(COUNTS))
    rows = [Entry(*each) for _, run in reader.runs(0, reader.end(), 7) for each in ENTRY.iter_unpack(run)]
    assert len(rows) == sum(COUNTS)
    at = 0
    for count in COUNTS:
        assert not rows[at].is_blank
        assert all(row.is_blank and row.physical == rows[at].physical for row in rows[at + 1 : at + count])
        for number in range(at, at + count):
            assert reader.at(number) == rows[at]
        at += count
    assert reader.at(at) is None
    assert reader.read(2, 3) == ENTRY.pack(rows[1].physical, PRE_BLANK_SIZE, 0)
    reader.close()


def test_a_whole_store_is_clean(root: Path) -> None:
    seen = verify(str(root))
    assert seen.findings == []
    assert not any("not checked" in note for note in seen.seen.state)
    assert seen.seen.queues["B", 0].end == sum(COUNTS)
    assert seen.seen.queues["B", 0].within == len(COUNTS)


@pytest.mark.parametrize(
    ("at", "data", "found"),
    [
        (0, struct.pack(">q", 17), {Kind.WRONG_ENTRY, Kind.LOST_RECORD, Kind.QUEUE_ORDER}),
        (8, struct.pack(">i", 99), {Kind.WRONG_ENTRY}),
        (12, struct.pack(">q", 5), {Kind.WRONG_TAGS}),
        (28, struct.pack(">q", 1), {Kind.NO_ENTRY}),
        (0, bytes(BATCH_ENTRY.size), {Kind.NO_ENTRY}),
    ],
    ids=["offset", "size", "tags", "base", "zeros"],
)
def test_damage_is_found_and_repaired(root: Path, at: int, data: bytes, found: set[Kind]) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(queue(root).iterdir()))
    damage(root, 16, at, data)
    assert kinds(root) & found
    assert run("repair", root, "--yes").code == 0
    assert kinds(root) == set()
    assert b"".join(path.read_bytes() for path in sorted(queue(root).iterdir())) == whole


def test_a_lost_file_is_found_and_repaired(root: Path) -> None:
    (queue(root) / f"{FILE_BYTES:020d}").unlink()
    assert Kind.QUEUE_GAP in kinds(root)
    assert run("repair", root, "--yes").code == 0
    assert kinds(root) == set()
    with open_store(root, batch_queue_file_bytes=FILE_BYTES) as store:
        assert len(read(store, "B")) == len(COUNTS)


def test_dump_stat_and_backup(root: Path, tmp_path: Path) -> None:
    ran = run("dump", root, "--topic", "B", "--queue", "0", "--queue-entries", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == len(COUNTS)
    assert run("stat", root).code == 0
    copy = tmp_path / "copy"
    assert run("backup", root, copy, "--verify").code == 0
    assert kinds(copy) == set()
    with open_store(copy, batch_queue_file_bytes=FILE_BYTES) as store:
        assert len(read(store, "B")) == len(COUNTS)


def test_the_doctor_samples_entries(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_samples, "WHOLE_BYTES", 0)
    monkeypatch.setattr(store_samples, "ENTRIES", 1000)
    assert store_samples.damages(StoreFolder("s", str(root)))[0] == []
    damage(root, 16, 0, struct.pack(">q", 17))
    found, _ = store_samples.damages(StoreFolder("s", str(root)))
    assert str(Kind.LOST_RECORD) in {each.kind for each in found}
