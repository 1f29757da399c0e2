"""The job as users run it: every message in the files once, whatever happened, and a manifest."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pyarrow.parquet as pq
import pytest

from firearrow._native.protocol.name_rules import is_system_topic
from firearrow.client.base.compression import COMPRESSED, open_body
from firearrow.spark_tools.arrow.columns import ALL
from firearrow.spark_tools.arrow.export_manifest import ExportManifest
from firearrow.spark_tools.arrow.parquet_writer import Layout
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.jobs import export as job
from firearrow.spark_tools.jobs import export_task, planning, task_runner
from firearrow.spark_tools.jobs.arguments import SourceArguments
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.jobs.export_task import ExportTask
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark.stores import TOPICS, Golden, KnownStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

Run = Callable[..., int]


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path) -> Run:
    """`run(*arguments)`: the exit code of `export … --to out`."""

    def run(*arguments: object) -> int:
        words = [*map(str, arguments), "--to", str(tmp_path / "out"), "--quiet"]
        return job.cli(words)

    return run


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [
        row for path in sorted(folder.rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()
    ]


def key_of(row: dict[str, object]) -> tuple[object, ...]:
    return row["topic"], row["queueId"], row["queueOffset"]


def test_every_message_is_in_the_files_once(
    run: Run, spark: "SparkSession", store: KnownStore, tmp_path: Path
) -> None:
    assert run("--path", store.root) == 0
    rows = {key_of(row): row for row in rows_of(tmp_path / "out")}
    assert len(rows) == len(store.messages) == spark.read.parquet(str(tmp_path / "out")).count()
    for known in store.messages:
        row = rows[known.queue.topic, known.queue.queue_id, known.queue_offset]
        assert row["body"] == known.body
        assert row["tags"] == known.tags
        assert row["keys"] == (" ".join(known.keys) or None)
        assert row["uniqKey"] == known.unique_id
        assert row["flag"] == known.flag
        assert row["brokerName"] == known.queue.broker_name
        assert known.properties.items() <= dict(row["properties"]).items()  # type: ignore[call-overload]
    manifest = ExportManifest.read(tmp_path / "out")
    manifest.check_files(tmp_path / "out", contents=True)
    assert manifest.rows == len(rows)
    assert 0 < manifest.seconds < 100
    options = orjson.loads((tmp_path / "out" / "_manifest.json").read_bytes())["options"]
    assert options["path"] == [str(store.root)]
    assert options["open_bodies"] is True
    assert options["compression"] == "zstd"
    assert {each.topic: each.rows for each in manifest.ranges}.keys() == TOPICS.keys()
    assert {Path(each.path).parts[0] for each in manifest.files} == {f"topic={topic}" for topic in TOPICS}
    assert not list((tmp_path / "out").rglob("*.writing"))


def test_it_can_be_read_as_a_table_with_its_partitions(
    run: Run, spark: "SparkSession", store: KnownStore, tmp_path: Path
) -> None:
    assert run("--path", store.root, "--columns", "queueId,queueOffset,body", "--partition-by", "topic") == 0
    table = spark.read.parquet(str(tmp_path / "out"))
    assert set(table.columns) == {"topic", "queueId", "queueOffset", "body"}
    counted = {row["topic"]: row["count"] for row in table.groupBy("topic").count().collect()}
    assert counted == {topic: len(store.of(topic)) for topic in TOPICS}


def test_only_what_is_chosen(run: Run, store: KnownStore, tmp_path: Path) -> None:
    chosen = ("--topics", "Orders", "--tags", "paid", "--sql", "number > 50")
    assert (
        run("--path", store.root, *chosen, "--partition-by", "none", "--columns", "topic,queueId,queueOffset")
        == 0
    )
    wanted = {
        (known.queue.topic, known.queue.queue_id, known.queue_offset)
        for known in store.of("Orders")
        if known.tags == "paid" and int(known.properties.get("number", 0)) > 50
    }
    found = [key_of(row) for row in rows_of(tmp_path / "out")]
    assert set(found) == wanted
    assert len(found) == len(wanted) > 0
    assert ExportManifest.read(tmp_path / "out").rows == len(wanted)


def test_bodies_may_stay_as_they_are_stored(run: Run, store: KnownStore, tmp_path: Path) -> None:
    assert run("--path", store.root, "--topics", "Readings", "--stored-bodies") == 0
    rows = {key_of(row): row for row in rows_of(tmp_path / "out")}
    for known in store.of("Readings"):
        row = rows[known.queue.topic, 0, known.queue_offset]
        flags = int(str(row["sysFlag"]))
        assert bool(flags & COMPRESSED) == (known.packed is not None)
        assert open_body(flags, bytes(row["body"])) == known.body  # type: ignore[arg-type]


def test_an_apache_store_is_exported_whole(run: Run, golden: Golden, tmp_path: Path) -> None:
    assert run("--path", golden.root, "--partition-by", "topic") == 0
    expected = {
        (topic, queue["queueId"], message["queueOffset"]): message["properties"]
        for topic, queue in golden.queues()
        for message in queue["messages"]
        if not topic.startswith("%") and not is_system_topic(topic)
    }
    rows = rows_of(tmp_path / "out")
    assert {key_of(row) for row in rows} == expected.keys()
    assert len(rows) == len(expected)


def test_what_was_gone_when_it_was_planned_is_named(run: Run, store: KnownStore, tmp_path: Path) -> None:
    known = store.in_queue("Readings", 0)
    count = len(known)
    offsets = orjson.dumps({"Readings": {known[0].queue.broker_name: {"0": [0, 1000]}}}).decode()
    asked = ("--path", store.root, "--offsets", offsets, "--no-fail-on-data-loss")
    report = tmp_path / "report.json"
    gone = f"{known[0].queue.topic}@{known[0].queue.broker_name}:0[{count}..1000)"
    reason = f"{gone}: beyond the end of the queue, which is {count}"
    assert run(*asked, "--dry-run", "--report", report) == 0
    assert orjson.loads(report.read_bytes())["lost"] == {reason: 1000 - count}
    assert run(*asked, "--report", report) == 0
    assert orjson.loads(report.read_bytes())["lost"] == {reason: 1000 - count}
    assert ExportManifest.read(tmp_path / "out").lost == (reason,)
    assert len(rows_of(tmp_path / "out")) == count


@contextmanager
def workers_write_at_most(spark: "SparkSession", size: int) -> Iterator[None]:
    """Limits files of Spark's Python workers to `size` bytes: like a full disk for them."""
    spark.sparkContext.parallelize([0, 1], 2).foreach(lambda _: None)
    workers = python_workers()
    assert workers
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for pid in workers:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        for pid in python_workers():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def python_workers() -> list[int]:
    """The daemon of Spark's Python, and what it forked, of this process's session."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                    daemons.add(int(folder.name))
    return [pid for pid in daemons if os.getpid() in lineage(pid, parents)]


def lineage(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def test_a_full_disk_is_reported_and_the_same_command_goes_on(
    run: Run,
    spark: "SparkSession",
    store: KnownStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(export_task, "BUNDLE_BYTES_MIN", 1)
    with workers_write_at_most(spark, 4096):
        assert run("--path", store.root) == 1
    assert "free some space and run it again" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out" / "_manifest.json").exists()
    assert run("--path", store.root) == 0
    rows = rows_of(tmp_path / "out")
    assert len({key_of(row) for row in rows}) == len(rows) == len(store.messages)
    assert len({each.part for each in ExportManifest.read(tmp_path / "out").ranges}) > 1


def test_what_killed_attempts_left_is_taken_away(run: Run, store: KnownStore, tmp_path: Path) -> None:
    assert run("--path", store.root) == 0
    manifest = tmp_path / "out" / "_manifest.json"
    before = ExportManifest.read(tmp_path / "out")
    manifest.unlink()
    some = tmp_path / "out" / before.files[0].path
    orphans = [some.with_name("part-999999.parquet"), some.with_name(".part-000000.parquet.1.writing")]
    for path in orphans:
        path.write_bytes(some.read_bytes())
    (tmp_path / "out" / "_checkpoint" / "marks" / "0").unlink()
    some.unlink()
    assert run("--path", store.root) == 0
    assert [each.path for each in ExportManifest.read(tmp_path / "out").files] == [
        each.path for each in before.files
    ]
    assert len(rows_of(tmp_path / "out")) == len(store.messages)
    assert not any(path.exists() for path in orphans)


class FailingOnce(ExportTask):
    """Writes all files under their names, and dies before it reports that."""

    def __call__(self, slices: "Sequence[Slice]", marks: ProgressFiles) -> None:
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            nowhere = ProgressFiles(marks.folder.parent / "nowhere")
            nowhere.folder.mkdir(exist_ok=True)
            super().__call__(slices, nowhere)
            raise ConnectionError("the worker dies")
        super().__call__(slices, marks)


def test_a_task_that_is_tried_again_leaves_no_double_rows(
    spark_retrying: "SparkSession", store: KnownStore, tmp_path: Path
) -> None:
    message_source = StoreSource((str(store.root),))
    plan = planning.planned(message_source, SourceArguments())
    slices = [Slice(number, part) for number, part in enumerate(plan.ranges)]
    marks = ProgressFiles(tmp_path / "marks")
    marks.folder.mkdir()
    work = FailingOnce(
        message_source=message_source,
        message_filter=MessageFilter(),
        folder=tmp_path / "out",
        layout=Layout(ALL, ("topic",)),
        open_bodies=True,
    )
    assert task_runner.run(spark_retrying.sparkContext, [slices[:4], slices[4:]], marks, work) == []
    assert (tmp_path / "nowhere").exists()
    rows = rows_of(tmp_path / "out")
    assert len({key_of(row) for row in rows}) == len(rows) == len(store.messages)
