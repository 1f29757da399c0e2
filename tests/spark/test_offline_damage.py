"""Stores that are damaged, truncated, or changed while they are read: a named loss or an error, never silence."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import QueueReader
from firearrow._native.offline.segment_files import rolled_files
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow.spark_tools.base.errors import DataLoss, StoreUnreadable
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from tests.spark.damaged_store import (
    COUNT,
    QUEUE,
    LossRecorder,
    entry_at,
    fill,
    offsets,
    opened,
    record_at,
    write_at,
)
from tests.support.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, open_store, put

# ---- damage ----


def test_an_invalid_record_is_lost_and_the_rest_is_read(root: Path) -> None:
    for number in (30, 31, 77):
        path, position, _ = record_at(root, number)
        write_at(path, position + 4, b"\0\0\0\0")
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
        assert offsets(reader, 0, COUNT, losses) == [n for n in range(COUNT) if n not in (30, 31, 77)]
    assert losses.ranges == [(30, 32), (77, 78)]
    assert "do not point to their records" in losses.reasons[0]
    assert str(root / "consumequeue" / "T" / "0") in losses.reasons[0]


def test_what_lost_raises_ends_the_reading(root: Path) -> None:
    path, position, _ = record_at(root, 30)
    write_at(path, position + 4, b"\0\0\0\0")

    def lost(part: QueueRange, why: str) -> None:
        raise DataLoss(f"{part}: {why}")

    with opened(root) as reader, pytest.raises(DataLoss, match=r"T@s:0\[30\.\.31\): their entries"):
        list(reader.read(QueueRange(QUEUE, 0, COUNT), MessageFilter(), lost, bytes_max=300))


def test_a_tag_that_is_not_asked_for_is_no_loss(root: Path) -> None:
    path, position, _ = record_at(root, 30)  # t2
    write_at(path, position + 4, b"\0\0\0\0")
    losses = LossRecorder()
    with opened(root) as reader:
        message_filter = MessageFilter(tags=frozenset({"t1"}))
        assert offsets(reader, 0, COUNT, losses, message_filter) == [n for n in range(COUNT) if n % 4 == 1]
        assert losses.ranges == []
        assert 30 not in offsets(reader, 0, COUNT, losses, MessageFilter(tags=frozenset({"t2"})))
    assert losses.ranges == [(30, 31)]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, struct.pack(">q", 1 << 60)),
        (0, struct.pack(">q", -5)),
        (8, struct.pack(">i", 17)),
        (0, struct.pack(">qi", 0, 0x7FFFFFFF)),
    ],
)
def test_a_wrong_entry_is_lost(root: Path, at: int, value: bytes) -> None:
    path, position = entry_at(root, 42)
    write_at(path, position + at, value)
    losses = LossRecorder()
    with opened(root) as reader:
        assert offsets(reader, 0, COUNT, losses) == [n for n in range(COUNT) if n != 42]
    assert losses.ranges == [(42, 43)]


def test_an_entry_to_the_record_of_another_queue_is_lost(root: Path) -> None:
    other = root / "consumequeue" / "T" / "1" / f"{0:020d}"
    path, position = entry_at(root, 5)
    write_at(path, position, other.read_bytes()[5 * 20 : 6 * 20])
    losses = LossRecorder()
    with opened(root) as reader:
        assert 5 not in offsets(reader, 0, COUNT, losses)
    assert losses.ranges == [(5, 6)]


def test_a_missing_segment_is_lost_by_name_and_the_rest_is_read(root: Path) -> None:
    segments = sorted((root / "commitlog").iterdir())
    gone = segments[1]
    base = int(gone.name)
    with_it = [n for n in range(COUNT) if record_at(root, n)[0] == gone]
    gone.unlink()
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
        assert reader.missing("s") == [(base, base + SEGMENT_BYTES)]
        assert offsets(reader, 0, COUNT, losses) == [n for n in range(COUNT) if n not in with_it]
    assert losses.ranges == [(with_it[0], with_it[-1] + 1)]
    assert losses.reasons == [f"no file in {root / 'commitlog'} has them"]


def test_times_lead_to_what_is_missing_and_not_past_it(root: Path) -> None:
    """Otherwise a start by time would skip it silently."""
    segments = sorted((root / "commitlog").iterdir())
    homes = [record_at(root, n)[0] for n in range(COUNT)]
    for path in segments[1:-1]:
        path.unlink()
    gone = [n for n in range(COUNT) if homes[n] in segments[1:-1]]
    path, position, _ = record_at(root, COUNT - 2)
    write_at(path, position + 4, b"\0")
    with opened(root) as reader:
        for number in range(COUNT):
            wanted = gone[0] if number in gone or number == gone[-1] + 1 else number
            wanted = COUNT - 2 if number == COUNT - 1 else wanted
            assert reader.offset_at(QUEUE, 1000 + number) == wanted
        assert reader.offset_at(QUEUE, 1000 + COUNT) == COUNT


def test_a_missing_queue_file_is_lost_by_name(root: Path) -> None:
    path, _ = entry_at(root, 20)
    path.unlink()
    losses = LossRecorder()
    with opened(root) as reader:
        assert offsets(reader, 0, COUNT, losses) == [*range(20), *range(30, COUNT)]
    assert losses.ranges == [(20, 30)]
    assert losses.reasons == [f"no file in {path.parent} has their entries"]


# ---- the end and the beginning ----


def test_a_queue_ends_after_its_last_whole_record(root: Path) -> None:
    """After a power failure entries may be there whose records are not."""
    path, position, size = record_at(root, COUNT - 3)
    write_at(path, position + size // 2, bytes(SEGMENT_BYTES - position - size // 2))
    for later in sorted((root / "commitlog").iterdir()):
        if later > path:
            write_at(later, 0, bytes(SEGMENT_BYTES))
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT - 3)
        assert offsets(reader, 0, COUNT - 3, losses) == [*range(COUNT - 3)]
        assert losses.ranges == []
        assert offsets(reader, COUNT - 5, COUNT, losses) == [COUNT - 5, COUNT - 4]
    assert losses.ranges == [(COUNT - 3, COUNT)]
    assert losses.reasons == ["the store ends before them"]


def test_a_last_record_that_is_damaged_is_lost_and_not_forgotten(root: Path) -> None:
    """After it the other queue has a whole record, so the log does not end there."""
    path, position, _ = record_at(root, COUNT - 1)
    write_at(path, position + 4, b"\0")
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
        assert offsets(reader, 0, COUNT, losses) == [*range(COUNT - 1)]
    assert losses.ranges == [(COUNT - 1, COUNT)]


def test_a_log_that_was_cut_is_read_as_far_as_it_is_there(root: Path) -> None:
    path, position, size = record_at(root, 60)
    os.truncate(path, position + size - 1)
    for later in sorted((root / "commitlog").iterdir()):
        if later > path:
            later.unlink()
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, 60)
        assert offsets(reader, 0, COUNT, losses) == [*range(60)]
        assert reader.log_end("s") == int(path.name) + position
    assert losses.ranges == [(60, COUNT)]


def test_what_the_broker_deleted_is_before_the_first(root: Path) -> None:
    first, second = sorted((root / "commitlog").iterdir())[:2]
    kept = next(n for n in range(COUNT) if record_at(root, n)[0] == second)
    first.unlink()
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (kept, COUNT)
        assert reader.offset_at(QUEUE, 0) == kept
        assert offsets(reader, kept - 2, kept + 2, losses) == [kept, kept + 1]
        assert offsets(reader, 0, 1, losses) == []
    assert losses.ranges == [(kept - 2, kept), (0, 1)]
    assert losses.reasons == ["they are not in the store any more"] * 2


def test_a_missing_queue_file_does_not_hide_what_is_before_it(root: Path) -> None:
    first, second = sorted((root / "commitlog").iterdir())[:2]
    kept = next(n for n in range(COUNT) if record_at(root, n)[0] == second)
    first.unlink()
    for number in range(kept // 10 * 10 + 10, COUNT - 10, 10):
        entry_at(root, number)[0].unlink()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (kept, COUNT)


def test_entries_before_the_queue_began_are_passed_over(root: Path) -> None:
    path, _ = entry_at(root, 0)
    write_at(path, 0, struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 7)
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (7, COUNT)
        assert offsets(reader, 7, COUNT, LossRecorder()) == [*range(7, COUNT)]
        sizes = sum(record_at(root, n)[2] for n in range(7, COUNT))
        assert reader.bytes_of(QueueRange(QUEUE, 0, COUNT)) == sizes


def test_a_queue_whose_records_are_all_gone_keeps_its_end(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{1 << 20:020d}").write_bytes(bytes(SEGMENT_BYTES))
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (COUNT, COUNT)
        (root / "commitlog" / f"{1 << 20:020d}").unlink()
        assert reader.bounds([QUEUE])[QUEUE] == (COUNT, COUNT)
        assert reader.log_end("s") == 0


def test_a_store_that_is_taken_away_is_an_error_and_not_empty(root: Path) -> None:
    with opened(root) as reader:
        root.rename(root.parent / "elsewhere")
        with pytest.raises(StoreUnreadable, match="commitlog does not exist any more"):
            reader.bounds([QUEUE])


# ---- while a broker writes ----


def test_a_store_that_is_written_is_read_as_it_is_at_that_moment(tmp_path: Path) -> None:
    losses = LossRecorder()
    with open_store(tmp_path) as store, opened(tmp_path) as reader:
        assert reader.topics() == []
        for round_ in range(12):
            fill(store, 9, start=9 * round_)
            put(store, b"staged, and in no file yet")
            end = 9 * (round_ + 1)
            assert reader.bounds([QUEUE])[QUEUE] == (0, end)
            assert offsets(reader, 0, end, losses) == [*range(end)]
            assert reader.log_end("s") == store.written
            store.abandon()
            store = MessageStore.open(  # noqa: PLW2901 (the staged one is gone)
                tmp_path,
                StoreConfig(
                    segment_bytes=SEGMENT_BYTES,
                    queue_file_bytes=QUEUE_FILE_BYTES,
                    index_slots=10,
                    index_entries=20,
                ),
            )
        store.close()
    assert losses.ranges == []


def test_an_entry_that_is_seen_half_written_is_looked_at_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker writes an entry's fields one after the other, the size last."""
    torn = {COUNT - 1}
    whole = QueueReader.read

    def read(entries: QueueReader, start: int, stop: int) -> bytes:
        data = whole(entries, start, stop)
        if start in torn and stop == start + 1 and looks.pop():
            return bytes(8) + data[8:]
        return data

    looks = [False, True, False]  # from the end: for the end of the file, for the record, a second time
    monkeypatch.setattr(QueueReader, "read", read)
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
    assert looks == []


def test_segments_that_vanish_while_they_are_read_are_lost(root: Path) -> None:
    """Those that are mapped stay readable; the others are reported."""
    losses = LossRecorder()
    with opened(root) as reader:
        reading = reader.read(QueueRange(QUEUE, 0, COUNT), MessageFilter(), losses, bytes_max=300)
        spans = next(reading)
        found = [spans.queue_offset(n) for n in range(len(spans))]
        segments = sorted((root / "commitlog").iterdir())
        last = next(n for n in range(COUNT) if record_at(root, n)[0] == segments[-1])
        mapped = [n for n in range(COUNT) if record_at(root, n)[0] == segments[0]]
        for path in segments[:-1]:
            path.unlink()
        found += [spans.queue_offset(n) for spans in reading for n in range(len(spans))]
    assert found == [*mapped, *range(last, COUNT)]
    assert losses.ranges == [(mapped[-1] + 1, last)]


def test_a_file_that_is_created_again_under_its_name_is_no_crash(root: Path) -> None:
    losses = LossRecorder()
    with opened(root) as reader:
        for path in (root / "commitlog").iterdir():
            path.unlink()
            path.write_bytes(os.urandom(SEGMENT_BYTES))
        assert offsets(reader, 0, COUNT, losses) == []
    assert sum(end - start for start, end in losses.ranges) == COUNT


def test_a_file_that_grows_is_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"short")
    mappings = MappedFiles()
    mapping = mappings.get(rolled_files(str(tmp_path))[0])
    assert mapping is not None
    assert mapping.end == 5
    path.write_bytes(b"longer now")
    again = mappings.get(rolled_files(str(tmp_path))[0])
    assert again is not None
    assert bytes(again.window) == b"longer now"
    assert len(mappings) == 1


def test_only_some_files_are_mapped_and_fewer_have_pages(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number * 100:020d}").write_bytes(b"%d" % number * 100)
    mappings = MappedFiles(count_max=4, resident_bytes_max=250)
    segments = rolled_files(str(tmp_path))
    kept = []
    for segment in [*segments, *segments[5:7]]:
        mapping = mappings.get(segment)
        assert mapping is not None
        kept.append(mapping)
        assert len(mappings) <= 4
        assert (
            sum(len(each.window) for each in {each.base: each for each in kept if each.resident}.values())
            <= 250
        )
    resident = [mapping.base for mapping in kept if mapping.resident]
    assert resident == [500, 600]
    assert [bytes(mapping.window[:1]) for mapping in kept[:10]] == [b"%d" % n for n in range(10)]
    mappings.close()
    assert len(mappings) == 0
    Path(segments[3].path).unlink()
    assert mappings.get(segments[3]) is None
