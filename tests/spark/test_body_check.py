"""A body that does not match its CRC is lost, by name or counted; never passed on unless configured."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.arrow.parquet_writer import Layout
from firearrow.spark_tools.base.body_check import BAD_CRC, with_valid_crc
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.rows import RangePartition, TaskReader
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.jobs.export_task import ExportTask
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from tests.spark.damaged_store import COUNT, QUEUE, LossRecorder, offsets, opened, record_at, write_at
from tests.spark.fakes import queue_of
from tests.spark.record_bytes import record_bytes, spans_of

WHOLE = QueueRange(QUEUE, 0, COUNT)
AS_IT_IS = MessageFilter(check_crc=False)


def change_body(root: Path, number: int) -> None:
    """Change one byte of it and nothing else."""
    path, position, size = record_at(root, number)
    record = path.read_bytes()[position : position + size]
    at = record.index(b"%d of 0" % number)
    write_at(path, position + at, bytes((record[at] ^ 0x10,)))


def test_records_with_wrong_bodies_are_lost_neighbours_as_one(root: Path) -> None:
    for number in (3, 40, 41, 42, COUNT - 1):
        change_body(root, number)
    losses = LossRecorder()
    with opened(root) as reader:
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
        left = [number for number in range(COUNT) if number not in (3, 40, 41, 42, COUNT - 1)]
        assert offsets(reader, 0, COUNT, losses) == left
        assert offsets(reader, 0, COUNT, LossRecorder(), AS_IT_IS) == [*range(COUNT)]
    assert {number for start, end in losses.ranges for number in range(start, end)} == {
        3,
        40,
        41,
        42,
        COUNT - 1,
    }
    assert set(losses.reasons) == {BAD_CRC}


def test_neighbours_in_one_window_are_one_range() -> None:
    records = [record_bytes(b"%d" % n, queue_offset=n) for n in range(6)]
    for n in (1, 2, 4):
        records[n] = records[n].replace(b"\0\0\0\x01%d" % n, b"\0\0\0\x01x")
    losses: list[tuple[QueueRange, str]] = []
    kept = with_valid_crc(spans_of(*records), queue_of(), lambda part, why: losses.append((part, why)))
    assert [kept.queue_offset(n) for n in range(len(kept))] == [0, 3, 5]
    assert losses == [(QueueRange(queue_of(), 1, 3), BAD_CRC), (QueueRange(queue_of(), 4, 5), BAD_CRC)]


def test_an_lmq_names_the_record_by_its_own_queue() -> None:
    record = record_bytes(b"1", topic="Orders", queue_id=2, queue_offset=7).replace(
        b"\0\0\0\x011", b"\0\0\0\x01x"
    )
    losses: list[QueueRange] = []
    assert (
        len(
            with_valid_crc(spans_of(record), queue_of(0, "%LMQ%light"), lambda part, why: losses.append(part))
        )
        == 0
    )
    assert losses == [QueueRange(queue_of(2), 7, 8)]


def test_only_what_was_chosen_is_looked_at(root: Path) -> None:
    change_body(root, 5)
    losses = LossRecorder()
    with opened(root) as reader:
        assert offsets(reader, 0, 8, losses, MessageFilter(tags=frozenset({"t0"}))) == [0, 4]
    assert losses.ranges == []


@pytest.mark.parametrize("columns", [ALL, ("topic", "queueOffset")])
def test_a_table_ends_or_goes_on_without_it(root: Path, columns: tuple[str, ...]) -> None:
    change_body(root, 5)

    def rows(**given: str) -> int:
        options = SourceOptions.of({"path": f"s={root}", **given}, BATCH)
        work = TaskReader(StoreSource((f"s={root}",)), options.message_filter(), columns, options)
        return sum(map(len, work.of(RangePartition((WHOLE,)))))

    if "body" in columns:
        with pytest.raises(DataLoss, match=r"T@s:0\[5\.\.6\): the body of the record does not match its CRC"):
            rows()
        assert rows(failOnDataLoss="false") == COUNT - 1
    assert rows(checkCrc="false") == COUNT
    assert rows(failOnDataLoss="false") == COUNT - ("body" in columns)


def test_an_export_names_it(root: Path, tmp_path: Path) -> None:
    change_body(root, 5)
    (tmp_path / "marks").mkdir()
    marks, whole = ProgressFiles(tmp_path / "marks"), Slice(0, WHOLE)

    def export(message_filter: MessageFilter, *, fail: bool) -> int:
        work = ExportTask(
            message_source=StoreSource((f"s={root}",)),
            message_filter=message_filter,
            folder=tmp_path / "out",
            layout=Layout(ALL),
            open_bodies=True,
            fail_on_data_loss=fail,
        )
        work([whole], marks)
        (file,) = (tmp_path / "out").glob("*.parquet")
        return int(pq.read_metadata(file).num_rows)

    with pytest.raises(DataLoss, match=r"T@s:0\[5\.\.6\)"):
        export(MessageFilter(), fail=True)
    assert export(MessageFilter(), fail=False) == COUNT - 1
    (mark,) = marks.written()
    assert "T@s:0[5..6)" in str(mark.detail)
