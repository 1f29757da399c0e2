"""Runs tasks of bulk jobs in Spark's Python workers, or in this process if there is little to do; only counts
come back.

The driver packs slices into tasks and gives Spark groups of tasks; a task does its slices in order. A
permanent failure comes back as a sentence. Any other error is raised, and Spark retries the whole group,
which resumes from its progress files. Driver: one thread, one that shows progress, and one that starts Spark.
"""

import errno
import heapq
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import ceil
from typing import TYPE_CHECKING

from firearrow.spark_tools.base.errors import REFUSALS, SparkToolsError, WriteFailed
from firearrow.spark_tools.base.worker_setup import setup_worker
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice
from firearrow.spark_tools.submit import MASTER

if TYPE_CHECKING:
    from pyspark import SparkContext

TASKS_PER_CORE = 4
GROUPS_PER_CORE = 2
"""Groups for the remaining tasks: they get smaller towards the end, so that the cores finish together."""
GROUP_TASKS_MAX = 4
"""Leaves tasks for cores that start later."""
LOCAL_BYTES_MAX = 256 << 20
"""What this process does itself, if no Spark runs yet: about what it can do while Spark starts."""
WORTH_S = 20
"""Spark is started for work that would take this process longer."""
SETTINGS = {
    "spark.speculation": "false",  # a second copy of a task would send everything twice
    "spark.ui.showConsoleProgress": "false",
}

Work = Callable[[Sequence[Slice], ProgressFiles], None]
"""Processes the slices one after the other and writes their progress; picklable."""


class WorkersLackPackage(SparkToolsError):
    """The executors cannot import this package."""


def fault_in(text: str) -> SparkToolsError | None:
    """The error in Spark's message, if users can fix it."""
    if "No module named 'firearrow" in text:
        return WorkersLackPackage(
            "the executors' Python has no firearrow: install it there, or ship it with the archive that "
            "`firearrow spark pack` makes"
        )
    if os.strerror(errno.ENOSPC) in text:
        return WriteFailed(
            "Spark has no space for its own files; free some space where spark.local.dir and the checkpoint "
            "are and run it again, it continues"
        )
    return None


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """Why a task ended early, in one sentence."""

    text: str


def context(job: str) -> "SparkContext":
    """The session's, or a new one with the settings that bulk jobs need."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (not needed for little work)

    SparkContext._ensure_initialized()  # before it a SparkConf lacks the settings of spark-submit
    settings = SparkConf().setAppName(f"firearrow {job}").setIfMissing("spark.master", "local[*]")
    for name, value in SETTINGS.items():
        settings.setIfMissing(name, value)
    return SparkContext.getOrCreate(settings)


def is_started() -> bool:
    """Whether this process has a context; importing pyspark would take longer than little work."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def may_begin_here() -> bool:
    """Whether this process may do tasks itself: Spark does not run yet, and its workers will be on this machine."""
    return not is_started() and re.fullmatch(r"local(\[.*)?", _master()) is not None


def _master() -> str:
    """Known without PySpark if the job was submitted by `firearrow spark`, or runs by itself."""
    master = os.environ.get(MASTER)
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415

        SparkContext._ensure_initialized()
        master = SparkConf().get("spark.master")
    return master or "local"


def context_for(job: str, left: Sequence[Slice]) -> "SparkContext | None":
    """Where to process these slices. None: in this process, which sends a few of them before Spark has started
    its workers."""
    return None if weight(left) <= LOCAL_BYTES_MAX and may_begin_here() else context(job)


def cores(spark: "SparkContext | None") -> int:
    return 1 if spark is None else spark.defaultParallelism


def tasks_of(
    slices: Sequence[Slice], cores: int, *, whole_queues: bool, concurrency: int = 1
) -> list[list[Slice]]:
    """Slices packed into tasks of about equal bytes, at most a few for each core, largest first.

    `whole_queues`: all slices of a queue go to one task, in order. `concurrency`: how many a task can process at a
    time; it gets that many if there is a task for each core.
    """
    groups = queues_of(slices, whole_queues)
    weighed = sorted(groups, key=weight, reverse=True)
    cores = max(1, cores)
    count = min(len(groups), cores * TASKS_PER_CORE, max(cores, ceil(len(groups) / concurrency)))
    bins: list[tuple[int, int]] = [(0, number) for number in range(count)]
    tasks: list[list[Slice]] = [[] for _ in bins]
    for group in weighed:
        filled, number = bins[0]
        tasks[number].extend(group)
        heapq.heapreplace(bins, (filled + weight(group), number))
    return tasks


def queues_of(slices: Sequence[Slice], whole: bool) -> deque[deque[Slice]]:
    """The slices of each queue in order; or each slice by itself."""
    if not whole:
        return deque(deque([slice_]) for slice_ in slices)
    ordered = sorted(slices, key=lambda slice_: (slice_.part.queue, slice_.part.start))
    return deque(deque(group) for _, group in groupby(ordered, key=lambda slice_: slice_.part.queue))


def weight(slices: Iterable[Slice]) -> int:
    """The estimated cost of a task, in bytes."""
    return sum(slice_.part.size or len(slice_.part) for slice_ in slices) + 1


def task_groups(tasks: Sequence[Sequence[Slice]], cores: int) -> list[list[Sequence[Slice]]]:
    """Groups of tasks that Spark gets as one task each: Spark needs 20 ms between two tasks, and the JVM time
    to compile."""
    found: list[list[Sequence[Slice]]] = []
    left = list(tasks)
    while left:
        size = min(GROUP_TASKS_MAX, ceil(len(left) / (max(1, cores) * GROUPS_PER_CORE)))
        found.append(left[:size])
        left = left[size:]
    return found


def run(
    spark: "SparkContext | None", tasks: Sequence[Sequence[Slice]], progress_files: ProgressFiles, work: Work
) -> list[str]:
    """Run all tasks; returns the permanent failures, each once. Other errors in a task are raised, by Spark when
    it gives up."""
    if not tasks:
        return []
    groups, group_work = task_groups(tasks, cores(spark)), TaskGroupWork(work, progress_files)
    if spark is None:
        return _texts(group_work(groups))
    try:
        refused = spark.parallelize(groups, len(groups)).mapPartitions(group_work).collect()
    except Exception as error:
        fault = fault_in(str(error))
        if fault is None:
            raise
        raise fault from None
    return _texts(refused)


def run_while_starting(
    job: str,
    left: Sequence[Slice],
    progress_files: ProgressFiles,
    work: Work,
    *,
    whole_queues: bool,
    concurrency: int,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """As `run`, for slices that are not in tasks yet. This process begins at once. If the rest would take it
    more than WORTH_S, it starts Spark meanwhile, which gets what is left when its workers are ready; until then
    they take the CPUs that source, target and this process could use."""
    queues = queues_of(left, whole_queues)
    here = TaskGroupWork(work, progress_files)
    refused: list[TaskRefused] = []
    spark: StartingSpark | None = None
    began, done = clock(), 0
    while queues and not (spark is not None and spark.is_ready):
        task = next_slices(queues, concurrency)
        refused += here([[task]])
        done += weight(task)
        rest_bytes = sum(map(weight, queues))
        if spark is None and rest_bytes > max(LOCAL_BYTES_MAX, WORTH_S * done / (clock() - began or 1e-9)):
            spark = StartingSpark(job, work)
        unfinished = {each.part.queue for each in task if progress_files.read(each).next < each.part.end}
        if whole_queues and unfinished:  # refused: what follows in these queues is not sent
            queues = deque(queue for queue in queues if queue[0].part.queue not in unfinished)
    if spark is None:
        return _texts(refused)
    started = spark.wait(needed=bool(queues))
    rest = [slice_ for queue in queues for slice_ in queue]
    if started is None or not rest:
        return _texts(refused)
    tasks = tasks_of(rest, cores(started), whole_queues=whole_queues, concurrency=concurrency)
    return list(dict.fromkeys([*_texts(refused), *run(started, tasks, progress_files, work)]))


def next_slices(queues: deque[deque[Slice]], concurrency: int) -> list[Slice]:
    """The next slice of each of the first queues, which are the last ones then; removes them."""
    found = []
    for _ in range(min(concurrency, len(queues))):
        queue = queues.popleft()
        found.append(queue.popleft())
        if queue:
            queues.append(queue)
    return found


class StartingSpark:
    """Starts Spark and a worker for each core in a thread, and imports there what `work` needs."""

    def __init__(self, job: str, work: Work) -> None:
        self._job, self._work = job, work
        self._context: SparkContext | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._start, name="start Spark", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Or it failed."""
        return not self._thread.is_alive()

    def wait(self, *, needed: bool) -> "SparkContext | None":
        """None: it could not start, and is not needed. WorkersLackPackage, and Spark's errors."""
        self._thread.join()
        if self._failure is not None and needed:
            raise fault_in(str(self._failure)) or self._failure
        return self._context

    def _start(self) -> None:
        try:
            started = context(self._job)
            count = started.defaultParallelism
            started.parallelize([self._work] * count, count).foreach(_import)
            self._context = started
        except Exception as error:
            self._failure = error


def _import(work: Work) -> None:
    """Its modules were imported when it was unpickled."""


def _texts(refused: Iterable["TaskRefused"]) -> list[str]:
    return list(dict.fromkeys(each.text for each in refused))


@dataclass(frozen=True, slots=True)
class TaskGroupWork:
    """Runs a group of tasks; Spark calls it with a partition, which has one group."""

    work: Work
    progress_files: ProgressFiles

    def __call__(self, groups: Iterable[Sequence[Sequence[Slice]]]) -> Iterator[TaskRefused]:
        setup_worker()
        for slices in chain.from_iterable(groups):
            try:
                self.work(slices, self.progress_files)
            except REFUSALS as error:
                yield TaskRefused(str(error))
