"""Copies each micro-batch of ranges: workers fetch and send, then the messages are counted.

    stream/        Spark's checkpoint: finished offsets, and those of the running micro-batch
    sent/NUMBER/   progress of that micro-batch, so that a repeated one resumes

A stream of Spark calls from a separate thread; `stop` may be called from any. At least once, and in the order
of source queues.
"""

import hashlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.disk_errors import disk_errors
from firearrow.spark_tools.base.errors import SendFailed
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange
from firearrow.spark_tools.datasource.ranges import planned_of, range_of
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.losses import NAMED_MAX, Counts, add, name
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting
from firearrow.spark_tools.jobs.report import Report
from firearrow.spark_tools.jobs.send_task import CONCURRENT_QUEUES
from firearrow.spark_tools.plan.queue_records import StreamOffsets

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

Table = Mapping[MessageQueue, MessageQueue]
Context = Callable[[Sequence[Slice]], "SparkContext | None"]
"""Where to run the tasks for these slices; None: in this process."""


class Stopped(Exception):
    """Stopped before the micro-batch started."""


def range_number(part: QueueRange) -> Slice:
    """A number that is the same whenever the same range is planned again, and differs for other ranges."""
    number = hashlib.blake2b(str(part).encode(), digest_size=8).digest()
    return Slice(int.from_bytes(number), part)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`end`: where it ends. `planned`: its ranges; with a reason those that are missing, and empty ones of queues
    that are read again from an earlier offset."""

    number: int
    end: StreamOffsets
    planned: Sequence[tuple[QueueRange, str | None]] = ()


@dataclass(slots=True)
class MicroBatchCopier:
    job_checkpoint: Checkpoint
    is_wanted: Callable[[MessageQueue], bool]
    """Whether a source queue is to be copied."""
    routes: Callable[[Sequence[MessageQueue]], Table]
    """Target queues for these and all other existing source queues."""
    work: Callable[[QueueRouting, int], task_runner.Work]
    """The work, for a number of concurrent tasks."""
    report: Report
    compare: Callable[[Sequence[QueueRange], StreamOffsets, OnDataLoss], None] | None = None
    """After a micro-batch: reports ranges of queues that were changed while it was copied."""
    batches: int = 0
    _table: dict[MessageQueue, MessageQueue] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _idle: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    def __call__(self, frame: "DataFrame", number: int) -> None:
        """For `foreachBatch`: copy the ranges that are the frame's rows."""
        rows = [row.asDict() for row in frame.collect()]
        planned = [(range_of(row), row["gone"]) for row in rows]
        spark = frame.sparkSession.sparkContext
        self.copy(MicroBatch(number, planned_of(rows), planned), lambda _: spark)

    def copy(self, batch: MicroBatch, context: Context) -> None:
        """Copy a whole micro-batch. Stopped, SendFailed, and errors of the source."""
        self._idle.clear()
        try:
            if self._stopping.is_set():
                raise Stopped
            self._copy(batch, context)
        finally:
            self._idle.set()

    def __str__(self) -> str:
        return f"{self.batches} micro-batches, {self.report.totals.get('messages', 0):,} messages"

    def stop(self, within_s: float) -> bool:
        """Start no further micro-batch. Returns whether none is running."""
        self._stopping.set()
        return self._idle.wait(within_s)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _copy(self, batch: MicroBatch, context: Context) -> None:
        selected = [(part, gone) for part, gone in batch.planned if self.is_wanted(part.queue)]
        slices = [range_number(part) for part, gone in selected if gone is None]
        progress_files = ProgressFiles(self.job_checkpoint.folder / "sent" / str(batch.number))
        with disk_errors(progress_files.folder):
            progress_files.folder.mkdir(parents=True, exist_ok=True)
        routing = self._routing({slice_.part.queue for slice_ in slices})
        left = [slice_ for slice_ in slices if progress_files.read(slice_).next < slice_.part.end]
        spark = context(left)
        cores = task_runner.cores(spark)
        tasks = task_runner.tasks_of(left, cores, whole_queues=True, concurrency=CONCURRENT_QUEUES)
        at_a_time = max(1, min(len(tasks), cores))
        failures = task_runner.run(spark, tasks, progress_files, self.work(routing, at_a_time))
        if failures:
            raise SendFailed(failures[0])
        if slices and self.compare is not None:
            self.compare([slice_.part for slice_ in slices], batch.end, self._count_gone)
        for slice_ in slices:
            self._count(slice_, progress_files.read(slice_))
        for part, gone in selected:
            if gone is not None:
                self._count_gone(part, gone)
        self.batches += 1
        self._forget(batch.number)

    def _routing(self, queues: set[MessageQueue]) -> QueueRouting:
        """A source queue keeps its target queue while the job runs."""
        if not queues <= self._table.keys():
            self._table = {**self.routes(sorted(queues)), **self._table}
        return QueueRouting(self._table)

    def _count(self, slice_: Slice, progress: SliceProgress) -> None:
        self.report.count(slice_.part.queue.topic, {**progress.counts, "offsets": len(slice_.part)})
        if len(self.report.lost) < NAMED_MAX:
            self.report.lost |= progress.detail.get("lost", {})

    def _count_gone(self, part: QueueRange, why: str) -> None:
        """Count a loss found while planning; no worker reads it. An empty range: a queue that is read again
        from an earlier offset."""
        if not len(part):
            queue = part.queue
            self.report.notes.append(f"{queue.topic}@{queue.broker_name}:{queue.queue_id}: {why}")
            return
        counts: Counts = {}
        add(counts, part)
        self.report.count(part.queue.topic, counts)
        name(self.report.lost, part, why)

    def _forget(self, number: int) -> None:
        """Delete the progress of earlier micro-batches, which Spark never runs again."""
        for folder in (self.job_checkpoint.folder / "sent").iterdir():
            if folder.name.isdecimal() and int(folder.name) < number:
                shutil.rmtree(folder)
