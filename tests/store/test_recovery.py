"""What a store promises after a stop, a kill, a torn tail and lost files."""

import json
import os
import shutil
from pathlib import Path

import pytest

from firearrow._native.store.files.errors import StoreForeign
from firearrow._native.store.log.record import Record
from tests.support.stores import (
    QUEUE_FILE_BYTES,
    SEGMENT_BYTES,
    bodies,
    drop_segments,
    log_records,
    open_store,
    properties_of,
    put,
    read,
)

COUNT = 60


def fill(root: Path, count: int = COUNT, kill: bool = False, body_bytes: int = 40) -> list[bytes]:
    store = open_store(root)
    for number in range(count):
        put(
            store,
            b"%04d" % number + b"x" * body_bytes,
            queue_id=number % 2,
            properties=properties_of(KEYS=f"k{number}", TAGS="a"),
            now_ms=1000 + number,
        )
        if number % 7 == 0:
            store.write()
    store.write()
    store.abandon() if kill else store.close()
    return [b"%04d" % number + b"x" * body_bytes for number in range(count)]


def in_order(root: Path) -> list[bytes]:
    with open_store(root) as store:
        return sorted(bodies(store) + bodies(store, queue_id=1))


@pytest.mark.parametrize("kill", [False, True])
def test_all_that_was_written_is_there_again(tmp_path: Path, kill: bool) -> None:
    sent = fill(tmp_path, kill=kill)
    assert (tmp_path / "abort").exists() == kill
    assert len(os.listdir(tmp_path / "commitlog")) > 1
    with open_store(tmp_path) as store:
        assert bodies(store) == sent[::2]
        assert bodies(store, queue_id=1) == sent[1::2]
        for number in range(COUNT):
            found, _, _ = store.reader.query("T", f"k{number}", 32, 0, 1 << 40)
            assert len(found) == 1
    assert not (tmp_path / "abort").exists()
    assert [record.body for record in log_records(tmp_path)] == sent


def test_staged_and_never_written_is_not_there_after_a_kill(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, b"written")
    store.write()
    put(store, b"staged")
    assert store.reader.max_offset("T", 0) == 1
    store.abandon()
    with open_store(tmp_path) as store:
        assert bodies(store) == [b"written"]
        assert put(store, b"next").queue_offset == 1


@pytest.mark.parametrize("lost", ["consumequeue", "index", "consumequeue/T/1"])
@pytest.mark.parametrize("kill", [False, True])
def test_lost_queues_and_index_are_rebuilt_as_they_were(tmp_path: Path, lost: str, kill: bool) -> None:
    sent = fill(tmp_path, kill=kill)
    before = contents(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / lost)
    with open_store(tmp_path) as store:
        assert bodies(store) == sent[::2]
        assert bodies(store, queue_id=1) == sent[1::2]
        assert all(len(store.reader.query("T", f"k{n}", 32, 0, 1 << 40)[0]) == 1 for n in range(COUNT))
    assert contents(tmp_path / "consumequeue") == before


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0") for path in files}


def end_of(record: Record) -> int:
    return record.physical_offset + record.size


def text_at(record: Record) -> int:
    return end_of(record) - len(record.properties_bytes)


@pytest.mark.parametrize(
    ("stale", "step"), [(b"\0", 1), (b"\xff", 5), pytest.param(b"\xff", 1, marks=pytest.mark.long)]
)
def test_a_tail_torn_at_any_byte_is_truncated(tmp_path: Path, stale: bytes, step: int) -> None:
    """The last two records, cut at every byte; after the cut there are zeros, or other bytes.

    A record's CRC covers its body alone: a tear inside the properties, its last part, shows by the zeros where nothing
    was written. Other bytes there cannot be distinguished from properties; we never leave any after the end.
    """
    origin = tmp_path / "origin"
    sent = fill(origin, 9, kill=True, body_bytes=5)
    records = log_records(origin)
    whole = (origin / "commitlog" / ("0" * 20)).read_bytes()
    start, end = records[-2].physical_offset, records[-1].physical_offset + records[-1].size
    for cut in range(start, end, step):
        root = tmp_path / "torn"
        shutil.copytree(origin, root)
        (root / "commitlog" / ("0" * 20)).write_bytes(whole[:cut] + stale * (end - cut) + whole[end:])
        kept = 7 + sum(
            cut >= (end_of(record) if stale == b"\0" else text_at(record)) for record in records[-2:]
        )
        assert in_order(root) == sent[:kept], cut
        with open_store(root) as store:
            put(store, b"new", queue_id=0)
            store.write()
            assert bodies(store)[-1] == b"new"
            assert not any((root / "commitlog" / ("0" * 20)).read_bytes()[store.written :])
        shutil.rmtree(root)


def test_a_stale_record_after_the_tear_is_never_served(tmp_path: Path) -> None:
    """A record of equal size is put where the torn one was: the complete one after it must not join it."""
    fill(tmp_path, 6, kill=True)
    torn, stale = log_records(tmp_path)[-2:]
    path = tmp_path / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(torn.physical_offset + 100)
        file.write(b"\xff" * 8)
    with open_store(tmp_path) as store:
        placed = put(
            store,
            b"n" * len(torn.body),
            queue_id=torn.queue_id,
            properties=torn.properties_bytes,
            now_ms=1000,
        )
        assert (placed.physical_offset, placed.end) == (torn.physical_offset, stale.physical_offset)
        store.write()
        store.abandon()
    assert [record.body[:4] for record in log_records(tmp_path)] == [
        b"0000",
        b"0001",
        b"0002",
        b"0003",
        b"nnnn",
    ]


def test_sync_flush_shows_nothing_that_a_crash_can_lose(tmp_path: Path) -> None:
    with open_store(tmp_path, sync_flush=True) as store:
        placed = put(store, b"one")
        put(store, b"two")
        store.write()
        assert store.reader.max_offset("T", 0) == 0
        assert store.reader.record_at(0) is None
        assert store.reader.get("T", 0, 0, 32).count == 0
        assert store.sync() == store.written
        store.confirm(placed.end)
        assert bodies(store) == [b"one"]
        store.confirm(store.written)
        assert bodies(store) == [b"one", b"two"]


def test_other_sizes_of_files_are_refused_by_name(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(StoreForeign, match=f"mappedFileSizeCommitLog={SEGMENT_BYTES}"):
        open_store(tmp_path, segment_bytes=2 * SEGMENT_BYTES)
    with pytest.raises(StoreForeign, match=f"mappedFileSizeConsumeQueue={QUEUE_FILE_BYTES}"):
        open_store(tmp_path, queue_file_bytes=2 * QUEUE_FILE_BYTES)
    assert len(in_order(tmp_path)) == COUNT


def test_an_empty_last_file_is_deleted(tmp_path: Path) -> None:
    sent = fill(tmp_path)
    last = max(os.listdir(tmp_path / "commitlog"))
    empty = tmp_path / "commitlog" / f"{int(last) + SEGMENT_BYTES:020d}"
    empty.touch()
    assert in_order(tmp_path) == sent
    assert not empty.exists()


def test_old_segments_are_deleted_and_the_queues_follow(tmp_path: Path) -> None:
    sent = fill(tmp_path)
    with open_store(tmp_path) as store:
        segments = len(os.listdir(tmp_path / "commitlog"))
        assert drop_segments(store, modified_before_ms=-1 << 40) == 0
        assert drop_segments(store, force=True, at_most=1) == 1
        first = store.reader.min_offset("T", 0)
        assert first > 0
        assert bodies(store) == sent[::2][first:]
        assert drop_segments(store, force=True, at_most=100) == segments - 2
        first = store.reader.min_offset("T", 0)
    with open_store(tmp_path) as store:
        assert store.reader.min_offset("T", 0) == first
        assert [record.queue_offset for record in read(store)] == list(range(first, COUNT // 2))


def test_a_dropped_topic_starts_at_zero(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path) as store:
        put(store, b"other", topic="U")
        assert store.drop_topic("T") == 2
        assert ("T", 0) not in store.reader.queues()
        assert store.reader.max_offset("T", 0) == 0
        assert bodies(store, "U") == [b"other"]
        assert put(store, b"again").queue_offset == 0


def test_a_topic_with_batch_queues_gets_no_plain_ones(tmp_path: Path) -> None:
    """Apache's broker does not open a store in which a topic has both."""
    with open_store(tmp_path) as store:
        put(store, b"body", topic="T")
        put(store, b"body", topic="Batch")
        store.write()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "batchconsumequeue" / "Batch" / "0").mkdir(parents=True)
    with open_store(tmp_path) as store:
        assert bodies(store, "T") == bodies(store, "Batch") == [b"body"]
    assert [folder.name for folder in (tmp_path / "consumequeue").iterdir()] == ["T"]


@pytest.mark.parametrize("kind", ["BatchCQ", "SimpleCQ"])
def test_queues_of_the_other_kind_are_moved_aside(tmp_path: Path, kind: str) -> None:
    """topics.json states which kind a topic has; its queues are rebuilt from the log."""
    with open_store(tmp_path) as store:
        put(store, b"body", topic="T")
        store.write()
    right, wrong = "batchconsumequeue", "consumequeue"
    if kind == "SimpleCQ":
        right, wrong = wrong, right
        (tmp_path / "consumequeue").rename(tmp_path / "batchconsumequeue")
    (tmp_path / "config").mkdir()
    config = {"topicConfigTable": {"T": {"topicName": "T", "attributes": {"queue.type": kind}}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(config))
    with open_store(tmp_path) as store:
        assert bodies(store, "T") == [b"body"]
        assert any("has not the kind of queues" in line for line in store.findings)
    assert (tmp_path / right / "T").is_dir()
    assert not (tmp_path / wrong / "T").exists()
    with open_store(tmp_path) as store:
        assert store.findings == ()
