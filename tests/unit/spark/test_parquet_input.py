"""What an import reads: parts in sequence where necessary, rows in their queues' order, from any row on."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.arrow.export_manifest import (
    ExportedFile,
    ExportedRange,
    ExportManifest,
    InvalidManifest,
)
from firearrow.spark_tools.arrow.parquet_writer import Layout
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.jobs.export_task import ExportTask
from firearrow.spark_tools.jobs.import_task import with_topics
from firearrow.spark_tools.jobs.parquet_input import (
    InvalidFiles,
    ParquetInput,
    batches,
    parquet_input,
    queues_in,
)
from tests.spark.fakes import FakeLog, queue_of

DAY_MS = 86_400_000
Parts = Sequence[Sequence[QueueRange]]


def export(
    log: FakeLog, folder: Path, parts: Parts, columns: tuple[str, ...] = ALL, by: tuple[str, ...] = ("date",)
) -> None:
    """As the job does it, with these parts."""
    marks = ProgressFiles(folder / "_checkpoint")
    marks.folder.mkdir(parents=True)
    work = ExportTask(
        message_source=log,
        message_filter=MessageFilter(),
        folder=folder,
        layout=Layout(columns, by),
        open_bodies=True,
    )
    files, ranges = [], []
    for number, part in enumerate(parts):
        slices = [Slice(1000 * number + index, each) for index, each in enumerate(part)]
        work(slices, marks)
        files += [ExportedFile(**file, part=number) for file in marks.read(slices[0]).detail["files"]]
        ranges += [
            ExportedRange(
                q.queue.topic, q.queue.broker_name, q.queue.queue_id, q.start, q.end, len(q), number
            )
            for q in part
        ]
    ExportManifest("job", "memory", 0, 0, {}, columns, by, tuple(ranges), tuple(files)).write(folder)


def span(start: int, end: int, queue_id: int = 0, topic: str = "Orders") -> QueueRange:
    return QueueRange(queue_of(queue_id, topic), start, end)


def keys(found: ParquetInput, start: int = 0) -> list[list[tuple[str, int, int]]]:
    """For each part, (topic, queue, offset) of its rows from `start` on."""
    return [
        [
            (row["topic"], row["queueId"], row["queueOffset"])
            for batch in batches(piece, start)
            for row in batch.to_pylist()
        ]
        for piece in found.file_ranges
    ]


def test_parts_of_a_queue_follow_each_other_and_others_do_not(tmp_path: Path) -> None:
    log = FakeLog()
    for queue_id, topic in ((0, "Orders"), (1, "Orders"), (0, "Payments")):
        log.add(queue_of(queue_id, topic), 10)
    parts = [
        [span(0, 5)],
        [span(5, 8)],
        [span(8, 10), span(0, 2, 1)],
        [span(2, 10, 1)],
        [span(0, 10, 0, "Payments")],
    ]
    export(log, tmp_path, parts)
    found = parquet_input(tmp_path, contents=True, ordered=True)
    assert [[piece.name for piece in chain] for chain in found.chains] == [
        ["part-000000", "part-000001", "part-000002", "part-000003"],
        ["part-000004"],
    ]
    assert found.queues == tuple(sorted(log.queues_there))
    assert [key for piece in keys(found) for key in piece] == [
        (each.queue.topic, each.queue.queue_id, offset)
        for part in parts
        for each in part
        for offset in range(each.start, each.end)
    ]
    assert [len(chain) for chain in parquet_input(tmp_path, contents=False, ordered=False).chains] == [1] * 5


def test_files_that_lie_across_each_other_are_put_in_order(tmp_path: Path) -> None:
    log, dice = FakeLog(), random.Random(5)
    for _ in range(60):
        log.add(queue_of(dice.randrange(2)), stored_ms=dice.randrange(4) * DAY_MS)
    parts = [[span(*log.bounds([queue])[queue], queue.queue_id) for queue in sorted(log.queues_there)]]
    export(log, tmp_path, parts)
    found = parquet_input(tmp_path, contents=False, ordered=True)
    assert len(found.file_ranges[0].files) == 4
    wanted = [("Orders", each.queue.queue_id, offset) for each in parts[0] for offset in range(each.end)]
    assert keys(found) == [wanted]
    for start in range(61):
        assert keys(found, start) == [wanted[start:]]


def test_consecutive_files_are_read_from_any_row_on(tmp_path: Path) -> None:
    log = FakeLog()
    for number in range(30):
        log.add(queue_of(), stored_ms=number // 10 * DAY_MS)
    export(log, tmp_path, [[span(0, 30)]])
    found = parquet_input(tmp_path, contents=False, ordered=True)
    assert len(found.file_ranges[0].files) == 3
    for start in range(31):
        assert keys(found, start) == [[("Orders", 0, offset) for offset in range(start, 30)]]


def test_row_groups_before_the_start_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"body": [str(number) for number in range(100)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    piece = parquet_input(tmp_path / "x.parquet", contents=False, ordered=True).file_ranges[0]
    for start in (0, 6, 7, 8, 50, 99, 100):
        read = [row["body"] for batch in batches(piece, start) for row in batch.to_pylist()]
        assert read == [str(number) for number in range(start, 100)]


def test_columns_that_folders_say_are_there(tmp_path: Path) -> None:
    for path in (
        "topic=A%2FB/queueId=7",
        "topic=__HIVE_DEFAULT_PARTITION__/queueId=0",
        "_temporary/topic=X",
        ".hidden",
    ):
        (tmp_path / path).mkdir(parents=True)
        pq.write_table(pa.table({"body": ["x"], "price": [1]}), tmp_path / path / "f.parquet")
    found = parquet_input(tmp_path, contents=False, ordered=True)
    rows = [row for piece in found.file_ranges for batch in batches(piece, 0) for row in batch.to_pylist()]
    assert rows == [{"body": "x", "topic": "A/B", "queueId": 7}, {"body": "x", "topic": None, "queueId": 0}]
    assert queues_in(found) == {MessageQueue("A/B", "rows", 7)}


def test_the_topics_of_other_files_are_found_with_their_queues(tmp_path: Path) -> None:
    rows = {"body": ["x"] * 4, "topic": ["A", "B", "A", None], "queueId": [3, None, 5, 9]}
    pq.write_table(pa.table(rows), tmp_path / "f.parquet")
    (tmp_path / "queueId=4").mkdir()
    pq.write_table(pa.table({"body": ["x"], "topic": ["C"]}), tmp_path / "queueId=4" / "g.parquet")
    found = parquet_input(tmp_path, contents=False, ordered=True)
    assert queues_in(found) == {
        MessageQueue(topic, "rows", top) for topic, top in (("A", 5), ("B", 0), ("C", 4))
    }
    assert [len(chain) for chain in found.chains] == [2]


def test_renamed_topics_say_what_they_were() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["A", "B", None, "A"], "body": [b"1", b"2", b"3", b"4"]})
    assert with_topics(batch, lambda topic: topic) is batch
    renamed = with_topics(batch, lambda topic: f"{topic}2" if topic == "A" else topic)
    assert renamed.to_pydict() == {
        "topic": ["A2", "B", None, "A2"],
        "body": [b"1", b"2", b"3", b"4"],
        "sourceTopic": ["A", "B", None, "A"],
    }


def test_an_export_that_has_not_finished_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_checkpoint").mkdir()
    with pytest.raises(InvalidManifest, match="the export is not finished"):
        parquet_input(tmp_path, contents=False, ordered=True)


def test_files_that_are_no_parquet_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFiles, match=r"no file or folder with \.parquet files"):
        parquet_input(tmp_path, contents=False, ordered=True)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(InvalidFiles, match=r"x\.parquet: is not a readable Parquet file"):
        parquet_input(tmp_path, contents=False, ordered=True)


def test_a_file_that_changed_since_the_export_is_named(tmp_path: Path) -> None:
    log = FakeLog()
    log.add(queue_of(), 10)
    export(log, tmp_path, [[span(0, 10)]])
    path = next(tmp_path.rglob("*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidManifest, match="crc"):
        parquet_input(tmp_path, contents=True, ordered=True)


def test_files_without_a_manifest_cannot_be_checked(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "f.parquet")
    with pytest.raises(InvalidOption, match="--check-files"):
        parquet_input(tmp_path, contents=True, ordered=True)


def test_a_folder_without_a_valid_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "queueId=first").mkdir()
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "queueId=first" / "f.parquet")
    with pytest.raises(InvalidFiles, match="queueId=first is not a valid queueId"):
        parquet_input(tmp_path, contents=False, ordered=True)
