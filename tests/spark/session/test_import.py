"""Exported messages are imported unchanged, in the order of their queues; and any Parquet with a body."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firearrow._native.store.log.record import Record
from firearrow.client.base.compression import COMPRESSED, open_body
from firearrow.client.base.message import MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.batch_sender import SinkSettings
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.provenance import Provenance
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs import export as exporting
from firearrow.spark_tools.jobs import import_ as job
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.import_task import ImportTask
from firearrow.spark_tools.jobs.parquet_input import parquet_input
from firearrow.spark_tools.jobs.report import NOTHING_LEFT, Report
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.data_loss import FailFast
from tests.spark.in_process_context import InProcessSparkContext
from tests.spark.stores import BROKER, KnownStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(tmp_path: Path, *arguments: object) -> int:
    words = [*map(str, arguments), "--checkpoint", str(tmp_path / "checkpoint"), "--quiet"]
    return job.cli(words)


def export(store: KnownStore, folder: Path, *arguments: str) -> None:
    words = ["--path", str(store.root), "--to", str(folder), "--quiet", *arguments]
    assert not exporting.cli(words)


def stored(broker: LocalBroker, topic: str) -> dict[int, list[Record]]:
    """The records of each queue, from the broker's files."""
    found: dict[int, list[Record]] = {}
    with StoreSource((str(broker.store),)).open() as reader:
        for queue in reader.queues(topic):
            start, end = reader.bounds([queue])[queue]
            part = QueueRange(queue, start, end)
            spans = list(reader.read(part, MessageFilter(), FailFast(True), bytes_max=1 << 20))
            found[queue.queue_id] = [each[number] for each in spans for number in range(len(each))]
    return found


def check_same(store: KnownStore, broker: LocalBroker, topic: str) -> list[Record]:
    """What the store has of the topic is at the broker, queue by queue, in order."""
    records = stored(broker, topic)
    for queue_id, there in records.items():
        known = store.in_queue(topic, queue_id)
        assert [open_body(record.sys_flag, record.body) for record in there] == [each.body for each in known]
        for record, each in zip(there, known, strict=True):
            assert record.properties["UNIQ_KEY"] == each.unique_id
            assert record.properties.get("TAGS") == each.tags
            assert record.properties.get("KEYS", "") == " ".join(each.keys)
            assert each.properties.items() <= record.properties.items()
            assert record.flag == each.flag
    return [record for there in records.values() for record in there]


def test_what_was_exported_comes_back(
    spark: "SparkSession", store: KnownStore, fresh_broker: LocalBroker, tmp_path: Path
) -> None:
    export(store, tmp_path / "out")
    target = ("--parquet", tmp_path / "out", "--target", fresh_broker.name_server)
    assert run(tmp_path, *target) == 1  # no such topic there, and no option to create it
    assert run(tmp_path, *target, "--create-topics", "--check-files") == 0
    for topic in ("Orders", "Payments", "Readings"):
        for record in check_same(store, fresh_broker, topic):
            provenance = Provenance.of(record.properties)
            assert provenance is not None
            assert provenance.queue == MessageQueue(topic, BROKER, record.queue_id)
            assert provenance.queue_offset == record.queue_offset
    assert run(tmp_path, *target, "--create-topics", "--check-files") == 0  # nothing is left
    assert sum(map(len, stored(fresh_broker, "Orders").values())) == len(store.of("Orders"))


def test_a_live_topic_is_exported_as_its_files_are(
    spark: "SparkSession", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    topic = topics(2)
    table = pa.table({"body": [f"{row}" for row in range(500)], "queueId": [row % 2 for row in range(500)]})
    pq.write_table(table, tmp_path / "x.parquet")
    target = ("--target", broker.name_server, "--to-topic", topic)
    assert run(tmp_path, "--parquet", tmp_path / "x.parquet", *target) == 0
    words = ["--topics", topic, "--quiet", "--partition-by", "queueId"]
    for name, source_arguments in (
        ("live", ["--name-server", broker.name_server]),
        ("files", ["--path", str(broker.store)]),
    ):
        assert not exporting.cli([*words, *source_arguments, "--to", str(tmp_path / name)])
    live, files = (rows_of(tmp_path / name) for name in ("live", "files"))
    assert live == files
    assert [row["body"] for row in live] == [
        f"{row}".encode() for start in (0, 1) for row in range(start, 500, 2)
    ]


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [
        row for path in sorted(folder.rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()
    ]


def test_bodies_as_they_were_stored_stay_so(
    spark: "SparkSession", store: KnownStore, broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    topic = topics(1)
    export(store, tmp_path / "out", "--topics", "Readings", "--stored-bodies", "--partition-by", "none")
    options = ("--to-topic", f"Readings={topic}", "--no-provenance")
    assert run(tmp_path, "--parquet", tmp_path / "out", "--target", broker.name_server, *options) == 0
    there, known = stored(broker, topic)[0], store.of("Readings")
    assert [open_body(record.sys_flag, record.body) for record in there] == [each.body for each in known]
    assert [bool(record.sys_flag & COMPRESSED) for record in there] == [
        each.packed is not None for each in known
    ]
    assert not any("REPLAY_JOB" in record.properties for record in there)


def test_other_parquet_needs_only_a_body(
    spark: "SparkSession", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    topic = topics(3)
    for number in range(3):
        rows = {
            "body": [f"{number}-{row}" for row in range(10)],
            "price": [1.5] * 10,
            "queueId": [number] * 10,
        }
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    assert run(tmp_path, "--parquet", tmp_path, "--target", broker.name_server, "--to-topic", topic) == 0
    for queue_id, there in stored(broker, topic).items():
        assert [record.body for record in there] == [f"{queue_id}-{row}".encode() for row in range(10)]
        assert len({record.properties["UNIQ_KEY"] for record in there}) == 10


def test_it_goes_on_after_what_was_acknowledged(
    broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    topic = topics(1)
    pq.write_table(
        pa.table({"body": [str(row) for row in range(100)]}), tmp_path / "x.parquet", row_group_size=30
    )
    found = parquet_input(tmp_path, contents=False, ordered=True)
    marks = ProgressFiles(tmp_path / "marks")
    marks.folder.mkdir()
    marks.write(SliceProgress(0, 47, {"messages": 47}))
    work = ImportTask(
        file_ranges={piece.name: piece for piece in found.file_ranges},
        target=Cluster.of({"nameServer": broker.name_server}),
        sink_settings=SinkSettings(topic=topic, queues=QueueIdUse.MODULO),
        renamed=str,
        job="job",
    )
    work([Slice(0, found.file_ranges[0].part)], marks)
    assert [record.body for record in stored(broker, topic)[0]] == [
        str(row).encode() for row in range(47, 100)
    ]
    mark = marks.read(Slice(0, found.file_ranges[0].part))
    assert (mark.next, mark.counts["messages"]) == (100, 100)


@pytest.mark.parametrize(
    ("columns", "arguments", "expected"),
    [
        ({"price": [1]}, ("--to-topic", "T"), "column body is missing"),
        ({"body": ["x"]}, (), "no topic: add a column topic"),
        ({"body": [1]}, ("--to-topic", "T"), "column body: must be binary or string"),
        ({"body": ["x"]}, ("--to-topic", "T", "--rate", "-1"), "--rate"),
    ],
)
def test_what_cannot_be_sent_is_reported_before_anything_is(
    columns: dict[str, list[object]],
    arguments: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert run(tmp_path, "--parquet", tmp_path, "--target", "127.0.0.1:1", *arguments) == 2
    assert expected in capsys.readouterr().err


def test_files_that_changed_need_another_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = imported_after(tmp_path, 1)
    with job.checkpoint(
        tmp_path / "checkpoint", job.JOB, {}, lambda: [piece.part for piece in found.file_ranges]
    ) as held:
        with pytest.raises(job.InvalidCheckpoint, match="other files"):
            job._tasks(held, imported_after(tmp_path, 2))
        assert len(job._tasks(held, found)) == 1


def imported_after(folder: Path, rows: int) -> job.ParquetInput:
    pq.write_table(pa.table({"body": ["x"] * rows}), folder / "x.parquet")
    return parquet_input(folder, contents=False, ordered=True)


def reported(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    file = tmp_path / "report.json"
    assert run(tmp_path, *arguments, "--report", file) == 0
    found: dict[str, Any] = orjson.loads(file.read_bytes())
    return found


def test_the_report_counts_by_the_topic_in_the_rows(
    broker: LocalBroker, topics: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "context", lambda _: InProcessSparkContext())
    topic = topics(1)
    rows = ["A"] * 30 + ["B"] * 10
    pq.write_table(pa.table({"body": ["x" * 100] * 40, "topic": rows}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"body": ["x" * 100] * 5, "topic": ["A"] * 5}), tmp_path / "y.parquet")
    given = ("--parquet", tmp_path, "--target", broker.name_server, "--to-topic", topic)
    dry = reported(tmp_path, *given, "--dry-run")
    assert {name: counts["messages"] for name, counts in dry["topics"].items()} == {"A": 35, "B": 10}
    assert {name: counts["files"] for name, counts in dry["topics"].items()} == {"A": 2, "B": 1}
    assert (dry["totals"]["messages"], dry["totals"]["files"]) == (45, 2)
    for _ in range(2):
        sent = reported(tmp_path, *given)
        counts = {name: (each["messages"], each["offsets"]) for name, each in sent["topics"].items()}
        assert counts == {"A": (35, 35), "B": (10, 10)}
        assert sent["topics"]["A"]["bytes"] > 3 * sent["topics"]["B"]["bytes"] > 3000
    assert sent["notes"][-1] == NOTHING_LEFT


def test_marks_of_an_earlier_version_are_reported_by_file() -> None:
    held = Checkpoint(
        Path(), "import", "id", 0, (Slice(0, QueueRange(MessageQueue("x.parquet", "rows", 0), 0, 9)),), True
    )
    report = Report("import", "id", "")
    mark = SliceProgress(0, 9, {"messages": 9, "bytes": 90}, {"topics": {"A": {"messages": 4, "bytes": 40}}})
    job.add_counts(report, held, [mark])
    assert report.topics == {
        "A": {"messages": 4, "bytes": 40, "offsets": 4},
        "x.parquet": {"messages": 5, "bytes": 50, "offsets": 5},
    }


def test_files_without_rows_are_not_said_to_be_done(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": pa.array([], pa.string())}), tmp_path / "x.parquet")
    ran = reported(tmp_path, "--parquet", tmp_path, "--target", "127.0.0.1:1", "--to-topic", "T")
    assert ran["notes"] == [
        "sent without REPLAY_* properties: " + ran["notes"][0].partition(": ")[2],
        job.NO_ROWS,
    ]


def test_a_dry_run_counts_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"body": ["x"] * 1234}), tmp_path / "x.parquet")
    assert (
        run(tmp_path, "--parquet", tmp_path, "--target", "127.0.0.1:1", "--to-topic", "T", "--dry-run") == 0
    )
    assert "1,234" in capsys.readouterr().out


def test_an_unreachable_target_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "x.parquet")
    assert (
        run(tmp_path, "--parquet", tmp_path, "--target", "127.0.0.1:1", "--to-topic", "T", "--timeout", "1")
        == 1
    )
    assert "127.0.0.1:1" in capsys.readouterr().err
