"""The lane of bulk jobs: slices of queues are worked on in Spark's Python workers, only counts come back.

The driver plans slices, packs them into tasks and shows how far the marks have come; a task does its slices in order.
What a task refuses for good comes back as a sentence; what it did not expect is raised, and Spark tries the task anew,
which goes on behind its marks. Driver: one thread, and one that paints.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from pyspark import SparkConf, SparkContext

from firearrow.spark_tools.errors import REFUSALS, SparkToolsError
from firearrow.spark_tools.jobs.marks import Marks, Slice
from firearrow.spark_tools.worker import settle

TASKS_A_CORE = 4
SETTINGS = {
    "spark.speculation": "false",  # a second copy of a task would send everything twice
    "spark.ui.showConsoleProgress": "false",
}

Work = Callable[[Sequence[Slice], Marks], None]
"""Does the slices one after the other and marks what is finished; picklable."""


class WorkersLackPackage(SparkToolsError):
    """Executors cannot import what the driver can."""


@dataclass(frozen=True, slots=True)
class Refused:
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

    `whole_queues`: all slices of a queue go to one task, in order. `abreast`: so many a task can work on at a time; it
    gets as many if there is a task for each core.
    """
    if whole_queues:
        ordered = sorted(slices, key=lambda piece: (piece.part.queue, piece.part.start))
        groups = [list(group) for _, group in groupby(ordered, key=lambda piece: piece.part.queue)]
    else:
        groups = [[piece] for piece in slices]
    weighed = sorted(groups, key=weight, reverse=True)
    cores = max(1, cores)
    count = min(len(groups), cores * TASKS_A_CORE, max(cores, ceil(len(groups) / abreast)))
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


def run(spark: SparkContext, tasks: Sequence[Sequence[Slice]], marks: Marks, work: Work) -> list[str]:
    """Do all; what was refused, each once. Whatever else goes wrong in a task is raised when Spark gives up."""
    if not tasks:
        return []
    try:
        refused = spark.parallelize(list(tasks), len(tasks)).mapPartitions(Working(work, marks)).collect()
    except Exception as error:
        if "No module named 'firearrow" in str(error):
            raise WorkersLackPackage(
                "the executors' Python has no firearrow: install it there, or ship it with the archive that "
                "`firearrow spark pack` makes"
            ) from None
        raise
    return list(dict.fromkeys(each.text for each in refused))


@dataclass(frozen=True, slots=True)
class Working:
    """A task's work, as Spark calls it with the task's partition."""

    work: Work
    marks: Marks

    def __call__(self, tasks: Iterable[Sequence[Slice]]) -> Iterator[Refused]:
        settle()
        for slices in tasks:
            try:
                self.work(slices, self.marks)
            except REFUSALS as error:
                yield Refused(str(error))
