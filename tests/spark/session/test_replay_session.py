"""replay in Spark: a retried task resumes after its checkpoint, and so does a command that was killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from pyspark import TaskContext

from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.client import blocking
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.jobs import planning, send_task, task_runner
from firearrow.spark_tools.jobs.arguments import SourceArguments
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting, map_queues
from firearrow.spark_tools.jobs.send_task import SendTask
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import PendingSend, Sender
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.data_loss import DataLosses
from tests.spark.programs import run_program
from tests.spark.replaying import stored
from tests.spark.stores import BROKER, SETTINGS, KnownStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS_MAX = 20_000
BATCHES = 8
"""What the first attempt of a task sends."""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalBroker]:
    root = tmp_path / "target" / BROKER
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS) as running:
        with blocking.Admin(name_server=running.name_server) as admin:
            for topic, queues in (("Orders", 4), ("Payments", 2), ("Readings", 1)):
                admin.create_topic(topic, queues)
        yield running


class Stumbling(Sender):
    """Fails with an unexpected error in the first attempt of a task."""

    sent = 0

    def send_batch(self, *given: object, **named: object) -> PendingSend:
        self.sent += 1
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0 and self.sent > BATCHES:
            self.finish()
            raise RuntimeError("out of the blue")
        return super().send_batch(*given, **named)  # type: ignore[arg-type]


@dataclass(frozen=True)
class StumblingForwarding:
    inner: SendTask

    def __call__(self, slices: Sequence[Slice], marks: ProgressFiles) -> None:
        before = send_task.BATCH_BYTES, send_task.Sender
        send_task.BATCH_BYTES, send_task.Sender = 2000, Stumbling  # type: ignore[misc]
        try:
            self.inner(slices, marks)
        finally:
            send_task.BATCH_BYTES, send_task.Sender = before  # type: ignore[misc]


def test_a_retried_task_goes_on_after_its_checkpoint(
    spark: "SparkSession", store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    message_source = StoreSource((str(store.root),))
    with message_source.open() as reader:
        parts = planning.ranges(reader, SourceArguments(topics=["Orders"]), DataLosses(fail=True))
    slices = [Slice(number, part) for number, part in enumerate(planning.slices(parts))]
    goal = Cluster(name_server=target.name_server)
    with Sender(goal) as sender:
        there = {"Orders": sender.queues("Orders")}
    mapping = map_queues([part.queue for part in parts], there, lambda topic: topic)
    work = SendTask(
        message_source=message_source,
        message_filter=MessageFilter(),
        target=goal,
        routing=QueueRouting(mapping.table),
        job="again",
        drop=BROKER_OWN,
    )
    (tmp_path / "marks").mkdir()
    marks = ProgressFiles(tmp_path / "marks")
    tasks = task_runner.tasks_of(slices, 2, whole_queues=True)
    assert task_runner.run(spark.sparkContext, tasks, marks, StumblingForwarding(work)) == []
    seen = Counter(
        record.properties["UNIQ_KEY"]
        for records in stored(target.store, "Orders").values()
        for record in records
    )
    assert set(seen) == {known.unique_id for known in store.of("Orders")}
    twice = seen.total() - len(seen)
    assert 0 < twice <= len(tasks) * send_task.WAITING_MAX * 20, "what was acknowledged and not yet marked"


@pytest.mark.timeout(400)
def test_a_command_that_was_killed_goes_on_where_it_was(
    spark_environment: dict[str, str], store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        "from firearrow.client.cli.main import main; main()",
        "spark",
        "--master",
        "local[2]",
        "--driver-memory",
        "512m",
        "replay",
        "--path",
        str(store.root),
        "--target",
        target.name_server,
        "--checkpoint",
        str(tmp_path / "checkpoint"),
        "--report",
        str(tmp_path / "report.json"),
        "--quiet",
    ]
    slow = subprocess.Popen(
        [*command, "--rate", "40"],
        env=os.environ | spark_environment,
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        marks = ProgressFiles(tmp_path / "checkpoint" / "marks")
        assert await_marks(slow, marks), "nothing was marked"
    finally:
        os.killpg(slow.pid, signal.SIGKILL)
        slow.communicate(timeout=30)
    ended_at = sum(mark.counts.get("messages", 0) for mark in marks.written())
    assert 0 < ended_at < len(store.messages)
    ran = run_program([*command, "--verify"], spark_environment, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "INFO" not in ran.stderr
    report = orjson.loads((tmp_path / "report.json").read_bytes())
    assert report["resumed"]
    assert report["totals"]["messages"] == len(store.messages)
    assert report["verification"]["missing"] == 0
    assert "Orders" in ran.stdout


def await_marks(running: "subprocess.Popen[str]", marks: ProgressFiles) -> bool:
    """Wait until a checkpoint is written; false if the job ended before."""
    for _ in range(ROUNDS_MAX):
        if marks.folder.is_dir() and any(mark.counts.get("messages") for mark in marks.written()):
            return True
        try:
            running.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        return False
    return False
