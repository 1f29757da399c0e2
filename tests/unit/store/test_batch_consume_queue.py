"""BatchCQ queues: entries of several messages, byte for byte Apache's, found by offset, after kills and rebuilds."""

import shutil
import struct
from pathlib import Path

import pytest

from firearrow._native.store.get_message import GetStatus
from firearrow._native.store.log.results import PutRefused, PutResult, PutStatus
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import drop_segments, item, open_store, properties_of, put, read

UNIT = struct.Struct(">qiqqqhii")
"""Apache's BatchConsumeQueue: physical offset, size, tags code, store time, base offset, messages, -1, 0."""
INNER_BATCH = 0xC0


def batch_store(root: Path, **options: object) -> MessageStore:
    store = open_store(root, batch_queue_file_bytes=10 * UNIT.size, **options)
    store.set_batch_topic("T", True)
    return store


def put_batch(
    store: MessageStore, *texts: bytes, queue_id: int = 0, now_ms: int = 1000, **properties: str
) -> PutResult:
    base = max(store.next_offset("T", queue_id), 0)
    named = properties_of(**properties, INNER_NUM=str(len(texts)), INNER_BASE=str(base))
    body = b"".join(map(item, texts))
    return put(store, body, "T", queue_id, named, now_ms=now_ms, sys_flag=INNER_BATCH)


def fill(store: MessageStore, entries: int, first: int = 0) -> list[int]:
    """Entries of 1 to 4 messages, singles among them; returns where each begins."""
    bases = []
    for n in range(first, first + entries):
        made = (
            put(store, b"%d" % n, now_ms=1000 + n)
            if n % 4 == 0
            else put_batch(store, *[b"%d" % n] * (n % 4 + 1), now_ms=1000 + n)
        )
        bases.append(made.queue_offset)
        store.write()
    return bases


def units(root: Path, topic: str = "T") -> list[tuple[int, ...]]:
    files = sorted((root / "batchconsumequeue" / topic / "0").iterdir())
    found = [unit for file in files for unit in UNIT.iter_unpack(file.read_bytes())]
    return [unit for unit in found if unit[1] > 0]


def expected_bases(entries: int) -> list[int]:
    counts = [1 if n % 4 == 0 else n % 4 + 1 for n in range(entries)]
    return [sum(counts[:n]) for n in range(entries + 1)]


def test_entries_are_apaches(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        one = put(store, b"alone", now_ms=5000, properties=properties_of(TAGS="a"))
        several = put_batch(store, b"x", b"y", b"z", now_ms=6000)
        store.write()
        assert (one.queue_offset, several.queue_offset, store.reader.max_offset("T", 0)) == (0, 1, 4)
    size = several.physical_offset - one.physical_offset
    assert units(tmp_path) == [
        (one.physical_offset, size, ord("a"), 5000, 0, 1, -1, 0),
        (several.physical_offset, several.end - several.physical_offset, 0, 6000, 1, 3, -1, 0),
    ]
    files = [path.name for path in (tmp_path / "batchconsumequeue" / "T" / "0").iterdir()]
    assert files == ["0" * 20]
    assert not (tmp_path / "consumequeue" / "T").exists()


def test_a_message_is_found_by_its_offset(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        bases = fill(store, 35)
        ends = [*bases[1:], store.reader.max_offset("T", 0)]
        assert [*bases, ends[-1]] == expected_bases(35)
        for base, end in zip(bases, ends, strict=True):
            for offset in range(base, end):
                got = store.reader.get("T", 0, offset, 1)
                assert (got.status, got.count, got.next_offset) == (GetStatus.FOUND, end - base, end)
        assert [record.queue_offset for record in read(store)] == bases
        at_end = store.reader.get("T", 0, ends[-1], 32)
        assert (at_end.status, at_end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, ends[-1])
        beyond = store.reader.get("T", 0, ends[-1] + 1, 32)
        assert (beyond.status, beyond.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, ends[-1])
        # at most 8 messages, but the first record whatever it has
        assert store.reader.get("T", 0, 0, 8).count == 6
        assert len(store.reader.entries("T", 0, 2, 5)) == 5
        assert store.reader.store_time("T", 0, bases[6] + 1) == 1006
        assert store.reader.offset_by_time("T", 0, 1006) == bases[6]
        assert store.reader.offset_by_time("T", 0, 1006, upper=True) == bases[6]
        assert store.reader.offset_by_time("T", 0, 9999) == ends[-1]
        assert store.reader.record_at(0) is not None


@pytest.mark.parametrize("damage", ["none", "files gone", "folder gone", "garbled"])
@pytest.mark.parametrize("clean", [True, False])
def test_queues_are_recovered(tmp_path: Path, clean: bool, damage: str) -> None:
    store = batch_store(tmp_path)
    bases = fill(store, 35)
    before = units(tmp_path)
    if clean:
        store.close()
    else:
        store.abandon()
    queue = tmp_path / "batchconsumequeue" / "T" / "0"
    if damage == "files gone":
        shutil.rmtree(queue)
    elif damage == "folder gone":
        shutil.rmtree(tmp_path / "batchconsumequeue")
    elif damage == "garbled":
        file = queue / f"{10 * UNIT.size:020d}"
        file.write_bytes(b"\xff" * file.stat().st_size)
    with batch_store(tmp_path) as store:
        assert [record.queue_offset for record in read(store)] == bases
        assert put_batch(store, b"a", b"b").queue_offset == expected_bases(35)[-1]
        store.write()
        assert units(tmp_path)[:35] == before
        assert store.reader.max_offset("T", 0) == expected_bases(35)[-1] + 2
    with batch_store(tmp_path) as store:
        assert store.findings == ()


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_tail_ends_at_a_whole_record(tmp_path: Path, cut: int) -> None:
    store = batch_store(tmp_path)
    bases = fill(store, 7)
    last = put_batch(store, b"x", b"y")
    store.write()
    store.abandon()
    log = sorted((tmp_path / "commitlog").iterdir())[-1]
    with open(log, "r+b") as file:
        file.seek(last.physical_offset % 4096 + 88 + cut)
        file.write(bytes(200))
    with batch_store(tmp_path) as store:
        assert [record.queue_offset for record in read(store)] == bases
        assert put_batch(store, b"x", b"y").queue_offset == last.queue_offset


def test_a_topic_that_only_its_messages_show(tmp_path: Path) -> None:
    """Neither a file nor a folder states which kind of queues it has."""
    store = batch_store(tmp_path)
    bases = fill(store, 12)
    store.close()
    shutil.rmtree(tmp_path / "batchconsumequeue")
    with open_store(tmp_path, batch_queue_file_bytes=10 * UNIT.size) as store:
        assert store.has_batch_queues("T")
        assert [record.queue_offset for record in read(store)] == bases
    assert not (tmp_path / "consumequeue" / "T").exists()


def test_plain_queues_become_batch_queues(tmp_path: Path) -> None:
    """A slave may get messages before the topic."""
    with open_store(tmp_path, batch_queue_file_bytes=10 * UNIT.size) as store:
        for n in range(12):
            put(store, b"%d" % n)
        store.set_batch_topic("T", True)
        assert put_batch(store, b"x", b"y").queue_offset == 12
        store.write()
        assert [record.queue_offset for record in read(store)] == [*range(13)]
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert [unit[4] for unit in units(tmp_path)] == [*range(13)]


def test_retention_moves_the_first_offset(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        bases = fill(store, 120)
        assert drop_segments(store, at_most=2) == 2
        first = store.reader.min_offset("T", 0)
        assert first in bases[1:]
        assert store.reader.get("T", 0, 0, 32).next_offset == first
        assert [record.queue_offset for record in read(store)] == [base for base in bases if base >= first]
    names = sorted(path.name for path in (tmp_path / "batchconsumequeue" / "T" / "0").iterdir())
    assert int(names[0]) > 0
    with batch_store(tmp_path) as store:
        assert store.reader.min_offset("T", 0) == first
        assert store.findings == ()
    shutil.rmtree(tmp_path / "batchconsumequeue")
    with batch_store(tmp_path) as store:
        assert (store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)) == (
            first,
            expected_bases(120)[-1],
        )


@pytest.mark.parametrize("at", [20, 28, 36, 0, 8])
def test_a_damaged_entry_is_repaired(tmp_path: Path, at: int) -> None:
    store = batch_store(tmp_path)
    bases = fill(store, 35)
    store.close()
    file = tmp_path / "batchconsumequeue" / "T" / "0" / f"{10 * UNIT.size:020d}"
    data = bytearray(file.read_bytes())
    whole = bytes(data)
    data[5 * UNIT.size + at + 1] ^= 0x11
    with batch_store(tmp_path) as store:
        file.write_bytes(data)
        assert [record.queue_offset for record in read(store)] == bases
        for base in bases:
            assert store.reader.get("T", 0, base, 1).count > 0
    with batch_store(tmp_path) as store:
        assert [record.queue_offset for record in read(store)] == bases
    if at != 20:  # only the store time: nobody is misled
        assert file.read_bytes() == whole


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        for properties in (
            properties_of(INNER_NUM="2", INNER_BASE="1"),
            properties_of(INNER_NUM="0", INNER_BASE="0"),
            properties_of(INNER_NUM="40000", INNER_BASE="0"),
            properties_of(INNER_BASE="0"),
        ):
            with pytest.raises(PutRefused) as refused:
                put(store, item(b"x"), properties=properties, sys_flag=INNER_BATCH)
            assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
        with pytest.raises(PutRefused):  # a message alone that claims to be several
            put(store, b"x", properties=properties_of(INNER_NUM="2", INNER_BASE="0"))
        with pytest.raises(PutRefused):
            put(store, item(b"x"), "U", properties=properties_of(INNER_NUM="1"), sys_flag=INNER_BATCH)
        assert store.staged_bytes == 0
        assert put_batch(store, b"a", b"b").queue_offset == 0


def test_dropped_batches_leave_no_offset(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        put_batch(store, b"a", b"b")
        store.write()
        put_batch(store, b"c", b"d", b"e")
        assert store.next_offset("T", 0) == 5
        assert store.reader.max_offset("T", 0) == 2
        store.write()
        assert store.reader.max_offset("T", 0) == 5


def test_unconfirmed_batches_are_hidden(tmp_path: Path) -> None:
    with batch_store(tmp_path, confirm_later=True) as store:
        first, second = put_batch(store, b"a", b"b"), put_batch(store, b"c")
        store.write()
        assert store.reader.max_offset("T", 0) == 0
        store.confirm(first.end)
        assert store.reader.max_offset("T", 0) == 2
        assert store.reader.get("T", 0, 2, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
        store.confirm(second.end)
        assert store.reader.get("T", 0, 2, 1).count == 1


def test_a_trim_keeps_whole_batches(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        bases = fill(store, 12)
        assert store.reader.batch_start("T", 0, bases[7] + 2) == bases[7]
        assert store.cleaner.trim_queue("T", 0, bases[7]) > 0
        assert store.reader.min_offset("T", 0) == bases[7]


def test_the_topic_can_be_created_again_with_plain_queues(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        fill(store, 5)
        store.set_batch_topic("T", False)
        assert store.drop_topic("T") == 1
        assert put(store, b"plain").queue_offset == 0
        store.write()
    assert not (tmp_path / "batchconsumequeue" / "T").exists()
    assert (tmp_path / "consumequeue" / "T" / "0").is_dir()


@pytest.mark.parametrize("tags", [None, frozenset({7})])
def test_a_pull_goes_on_after_lost_messages(tmp_path: Path, tags: frozenset[int] | None) -> None:
    """More of them than a pull looks at."""
    with batch_store(tmp_path, segment_bytes=1 << 14) as store:
        put(store, b"before")
        lost = put_batch(store, *[b""] * 500)
        for _ in range(40):
            put(store, bytes(1000))
        store.write()
    log = tmp_path / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:
        file.seek(lost.physical_offset + 4)
        file.write(bytes(4))
    for queue in (tmp_path / "batchconsumequeue" / "T").iterdir():
        shutil.rmtree(queue)
    with batch_store(tmp_path, segment_bytes=1 << 14) as store:
        assert [record.queue_offset for record in read(store)] == [0, *range(501, 541)]
        at = 1
        while at < 541:
            got = store.reader.get("T", 0, at, 1, tags=tags)
            assert got.next_offset > at
            at = got.next_offset


def test_a_damaged_entry_whose_record_is_lost_misleads_no_pull(tmp_path: Path) -> None:
    with batch_store(tmp_path) as store:
        bases = fill(store, 35)
        entry = list(UNIT.unpack(UNIT.pack(*units(tmp_path)[15])))
        record = entry[0]
    with batch_store(tmp_path) as store:
        file = tmp_path / "batchconsumequeue" / "T" / "0" / f"{10 * UNIT.size:020d}"
        with file.open("r+b") as opened:
            opened.seek(5 * UNIT.size + 28)
            opened.write((1 << 60).to_bytes(8, "big"))
        with sorted((tmp_path / "commitlog").iterdir())[record // 4096].open("r+b") as log:
            log.seek(record % 4096 + 4)
            log.write(bytes(4))
        for at in range(expected_bases(35)[-1]):
            got = store.reader.get("T", 0, at, 1)
            assert at < got.next_offset <= expected_bases(35)[-1]
        assert [record.queue_offset for record in read(store)] == [*bases[:15], *bases[16:]]
