"""A bundle is written whole or not at all, once however often it is tried, and its checkpoint lists its files."""

import pickle
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.arrow.parquet_writer import ExportFailed, Layout
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.jobs.export_task import (
    BUNDLE_BYTES,
    BUNDLE_BYTES_MIN,
    BUNDLE_SLICES,
    OUR_NAME,
    ExportTask,
    bundles,
)
from tests.spark.fakes import FakeLog, queue_of

TOPIC_AND_DATE = ("topic", "date")


@pytest.fixture
def marks(tmp_path: Path) -> ProgressFiles:
    folder = tmp_path / "marks"
    folder.mkdir()
    return ProgressFiles(folder)


def log_of(**queues: int) -> FakeLog:
    """`Orders_0=10`: ten messages in queue 0 of Orders."""
    log = FakeLog()
    for name, count in queues.items():
        topic, _, queue_id = name.partition("_")
        log.add(queue_of(int(queue_id), topic), count, tags="t")
    return log


def slices_of(log: FakeLog, each: int = 4) -> list[Slice]:
    found: list[Slice] = []
    for queue in sorted(log.queues_there):
        first, end = log.bounds([queue])[queue]
        for start in range(first, end, each):
            found.append(Slice(len(found), QueueRange(queue, start, min(start + each, end))))
    return found


def work(log: FakeLog, folder: Path, **more: object) -> ExportTask:
    given = {"layout": Layout(ALL, TOPIC_AND_DATE), "open_bodies": True} | more
    return ExportTask(message_source=log, message_filter=MessageFilter(), folder=folder, **given)  # type: ignore[arg-type]


def rows(folder: Path) -> list[tuple[str, int, int]]:
    """(topic, queue, offset) of all rows, file by file."""
    found = []
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.ParquetFile(path).read(columns=["topic", "queueId", "queueOffset"])
        found += list(zip(*(table.column(number).to_pylist() for number in range(3)), strict=True))
    return found


def test_every_message_is_in_the_files_once_and_in_order(tmp_path: Path, marks: ProgressFiles) -> None:
    log = log_of(Orders_0=10, Orders_1=3, Payments_0=1)
    slices = slices_of(log)
    work(log, tmp_path / "out")(slices, marks)
    assert rows(tmp_path / "out") == [
        *(("Orders", 0, offset) for offset in range(10)),
        *(("Orders", 1, offset) for offset in range(3)),
        ("Payments", 0, 0),
    ]
    done = [marks.read(each) for each in slices]
    assert all(mark.next == each.part.end for mark, each in zip(done, slices, strict=True))
    assert [mark.counts["messages"] for mark in done] == [4, 4, 2, 3, 1]
    files = done[0].detail["files"]
    assert [file["rows"] for file in files] == [13, 1]
    assert [file["path"] for file in files] == sorted(
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")
    )


def test_a_bundle_that_was_not_marked_is_written_again_to_the_same_files(
    tmp_path: Path, marks: ProgressFiles
) -> None:
    log = log_of(Orders_0=10)
    slices, exporting = slices_of(log), work(log, tmp_path / "out")
    exporting(slices, marks)
    (marks.folder / "1").unlink()
    before = rows(tmp_path / "out")
    exporting(slices, marks)
    assert rows(tmp_path / "out") == before
    assert marks.read(slices[1]).next == slices[1].part.end


def test_a_finished_bundle_is_not_read_again(tmp_path: Path, marks: ProgressFiles) -> None:
    log = log_of(Orders_0=10)
    slices = slices_of(log)
    work(log, tmp_path / "out")(slices, marks)
    work(FakeLog(), tmp_path / "out")(slices, marks)
    assert len(rows(tmp_path / "out")) == 10


class Breaking(FakeLog):
    """Ends in the middle of the second slice."""

    def read(self, part: QueueRange, message_filter: MessageFilter, lost: OnDataLoss, *, bytes_max: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
        for number, spans in enumerate(super().read(part, message_filter, lost, bytes_max=1)):
            if part.start == 4 and number == 1:
                raise ConnectionError("the worker is gone")
            yield spans


def test_a_task_that_fails_leaves_neither_files_nor_marks(tmp_path: Path, marks: ProgressFiles) -> None:
    log = Breaking(log_of(Orders_0=10).queues_there)
    with pytest.raises(ConnectionError):
        work(log, tmp_path / "out")(slices_of(log), marks)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    assert list(marks.written()) == []


def test_what_is_lost_ends_it_or_is_named(tmp_path: Path, marks: ProgressFiles) -> None:
    log = log_of(Orders_0=10)
    slices = slices_of(log)
    log.expire(queue_of(0), 4)
    with pytest.raises(DataLoss, match=r"Orders@broker-a:0\[0\.\.4\)"):
        work(log, tmp_path / "out")(slices, marks)
    work(log, tmp_path / "out", fail_on_data_loss=False)(slices, marks)
    assert [row[2] for row in rows(tmp_path / "out")] == [4, 5, 6, 7, 8, 9]
    named = [name for each in slices for name in marks.read(each).detail.get("lost", {})]
    assert named == ["Orders@broker-a:0[0..4): expired"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, marks: ProgressFiles) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ExportFailed, match="cannot be written"):
        work(log_of(Orders_0=1), tmp_path / "out")(slices_of(log_of(Orders_0=1)), marks)


def test_bundles_hold_every_slice_once_and_are_bounded() -> None:
    dice = random.Random(3)
    queue = MessageQueue("T", "b", 0)
    for total in (1, 2, 50, 3000):
        sizes = [dice.choice((0, 1, 1 << 10, 1 << 20, BUNDLE_BYTES)) for _ in range(total)]
        slices = [
            Slice(number, QueueRange(queue, number, number + 1, size)) for number, size in enumerate(sizes)
        ]
        made = bundles(slices)
        assert [each for bundle in made for each in bundle] == slices
        assert made == bundles(slices)
        for bundle in made:
            assert len(bundle) <= BUNDLE_SLICES
            assert len(bundle) == 1 or sum(each.part.size for each in bundle) <= BUNDLE_BYTES


def test_a_small_source_still_makes_a_few_bundles() -> None:
    queue = MessageQueue("T", "b", 0)
    slices = [
        Slice(number, QueueRange(queue, number, number + 1, BUNDLE_BYTES_MIN // 2)) for number in range(8)
    ]
    assert len(bundles(slices)) == 4


def test_only_its_own_files_are_known_by_their_names() -> None:
    ours = ("part-000000.parquet", "part-1234567-3.parquet", ".part-000001.parquet.77.writing")
    others = (
        "part-00000-8c1d-c000.snappy.parquet",
        "part-1.parquet",
        "my-part-000001.parquet",
        "part-000001.csv",
    )
    assert all(OUR_NAME.fullmatch(name) for name in ours)
    assert not any(OUR_NAME.fullmatch(name) for name in others)


def test_it_travels_to_workers(tmp_path: Path) -> None:
    exporting = work(log_of(Orders_0=2), tmp_path)
    assert pickle.loads(pickle.dumps(exporting)).layout == exporting.layout
