"""Runs tasks of bulk jobs in Spark's Python workers; only counts come back.

The driver packs slices into tasks and gives Spark groups of tasks; a task does its slices in order. A
permanent failure comes back as a sentence. Any other error is raised, and Spark retries the whole group,
which resumes at its marks. Driver: one thread, and one that shows progress.
"""

import errno
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import ceil

from pyspark import SparkConf, SparkContext

from firearrow.spark_tools.base.errors import REFUSALS, SparkToolsError, WriteFailed
from firearrow.spark_tools.base.worker_setup import setup_worker
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice

TASKS_PER_CORE = 4
GROUPS_PER_CORE = 2
"""Of what is left: a handful is the smaller the less that is, so that the cores end together."""
GROUP_TASKS_MAX = 4
"""Cores that come later find something, too."""
SETTINGS = {
    "spark.speculation": "false",  # a second copy of a task would send everything twice
    "spark.ui.showConsoleProgress": "false",
}

Work = Callable[[Sequence[Slice], ProgressFiles], None]
"""Does the slices one after the other and marks what is finished; picklable."""


class WorkersLackPackage(SparkToolsError):
    """Executors cannot import what the driver can."""


def fault_in(text: str) -> SparkToolsError | None:
    """What Spark says, if it is something that people can mend."""
    if "No module named 'firearrow" in text:
        return WorkersLackPackage(
            "the executors' Python has no firearrow: install it there, or ship it with the archive that "
            "`firearrow spark pack` makes"
        )
    if os.strerror(errno.ENOSPC) in text:
        return WriteFailed(
            "Spark has no room for files of its own; make room where spark.local.dir and the checkpoint are "
            "and run "
            "it again, it goes on"
        )
    return None


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """Why a task ended early, in one sentence."""

    text: str


def context(job: str) -> SparkContext:
    """The session's, or a new one with what bulk jobs need."""
    SparkContext._ensure_initialized()  # before it a SparkConf does not know what spark-submit was told
    settings = SparkConf().setAppName(f"firearrow {job}").setIfMissing("spark.master", "local[*]")
    for name, value in SETTINGS.items():
        settings.setIfMissing(name, value)
    return SparkContext.getOrCreate(settings)


def tasks_of(
    slices: Sequence[Slice], cores: int, *, whole_queues: bool, abreast: int = 1
) -> list[list[Slice]]:
    """Slices packed into tasks of about equal bytes, at most a few for each core, largest first.

    `whole_queues`: all slices of a queue go to one task, in order. `abreast`: so many a task can work on at a
    time; it gets as many if there is a task for each core.
    """
    if whole_queues:
        ordered = sorted(slices, key=lambda piece: (piece.part.queue, piece.part.start))
        groups = [list(group) for _, group in groupby(ordered, key=lambda piece: piece.part.queue)]
    else:
        groups = [[piece] for piece in slices]
    weighed = sorted(groups, key=weight, reverse=True)
    cores = max(1, cores)
    count = min(len(groups), cores * TASKS_PER_CORE, max(cores, ceil(len(groups) / abreast)))
    bins: list[tuple[int, int]] = [(0, number) for number in range(count)]
    tasks: list[list[Slice]] = [[] for _ in bins]
    for group in weighed:
        filled, number = bins[0]
        tasks[number].extend(group)
        heapq.heapreplace(bins, (filled + weight(group), number))
    return tasks


def weight(slices: Sequence[Slice]) -> int:
    """What a task of these costs, about bytes."""
    return sum(piece.part.size or len(piece.part) for piece in slices) + 1


def task_groups(tasks: Sequence[Sequence[Slice]], cores: int) -> list[list[Sequence[Slice]]]:
    """Neighbouring tasks that Spark gets as one: between two of its own it needs 20 ms, and the JVM time to
    compile."""
    found: list[list[Sequence[Slice]]] = []
    left = list(tasks)
    while left:
        size = min(GROUP_TASKS_MAX, ceil(len(left) / (max(1, cores) * GROUPS_PER_CORE)))
        found.append(left[:size])
        left = left[size:]
    return found


def run(spark: SparkContext, tasks: Sequence[Sequence[Slice]], marks: ProgressFiles, work: Work) -> list[str]:
    """Do all; what was refused, each once. Whatever else goes wrong in a task is raised when Spark gives
    up."""
    if not tasks:
        return []
    try:
        held = task_groups(tasks, spark.defaultParallelism)
        refused = spark.parallelize(held, len(held)).mapPartitions(TaskGroupWork(work, marks)).collect()
    except Exception as error:
        fault = fault_in(str(error))
        if fault is None:
            raise
        raise fault from None
    return list(dict.fromkeys(each.text for each in refused))


@dataclass(frozen=True, slots=True)
class TaskGroupWork:
    """The work of a handful of tasks, as Spark calls it with a partition: one handful."""

    work: Work
    marks: ProgressFiles

    def __call__(self, held: Iterable[Sequence[Sequence[Slice]]]) -> Iterator[TaskRefused]:
        setup_worker()
        for slices in chain.from_iterable(held):
            try:
                self.work(slices, self.marks)
            except REFUSALS as error:
                yield TaskRefused(str(error))
