"""Runs the audit's tasks in Spark's Python workers; only results come back. Progress on stderr.

Driver: one thread, and one that shows progress.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import Accumulator, SparkContext
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from firearrow.spark_tools.base.errors import REFUSALS, StoreUnreadable
from firearrow.spark_tools.jobs.task_runner import TaskRefused, fault_in

PARTS_MIN = 64
PARTS_PER_CORE = 4
PAINT_S = 0.5
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One task as Spark calls it: (task, weight) → its result, or why it failed."""

    work: Callable[[Any], Any]
    done: Accumulator[int]

    def __call__(self, task: tuple[Any, int]) -> Any:  # noqa: ANN401 (the result of `work`)
        try:
            seen = self.work(task[0])
        except REFUSALS as error:
            return TaskRefused(str(error))
        self.done.add(task[1])
        return seen


class SparkExecutor:
    """The executor of a StoreAudit."""

    def __init__(self, spark: SparkContext, *, quiet: bool) -> None:
        self._spark, self._quiet = spark, quiet
        self.width = max(PARTS_MIN, PARTS_PER_CORE * spark.defaultParallelism)

    def __call__(
        self, step: str, work: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int]
    ) -> list[R]:
        if not tasks:
            return []
        done = self._spark.accumulator(0)
        pairs = list(zip(tasks, weights, strict=True))
        with self._shown(step, done, sum(weights)):
            seen = self._collect(AuditTask(work, done), pairs)
        refused = [each.text for each in seen if isinstance(each, TaskRefused)]
        if refused:
            raise StoreUnreadable(refused[0])
        return seen

    def _collect(self, doing: AuditTask, pairs: Sequence[tuple[Any, int]]) -> list[Any]:
        try:
            return self._spark.parallelize(pairs, min(len(pairs), self.width)).map(doing).collect()
        except Exception as error:
            fault = fault_in(str(error))
            if fault is None:
                raise
            raise fault from None

    @contextmanager
    def _shown(self, step: str, done: Accumulator[int], total: int) -> Iterator[None]:
        """Show progress while the block runs, and a last time at its end."""
        columns = (
            TextColumn(f"audit: {step:8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), disable=self._quiet) as progress:
            bar, ended = progress.add_task(step, total=max(1, total)), threading.Event()

            def paint() -> None:
                while not ended.wait(PAINT_S):
                    progress.update(bar, completed=done.value)

            painter = threading.Thread(target=paint, name="firearrow-progress", daemon=True)
            painter.start()
            try:
                yield
            finally:
                ended.set()
                painter.join()
                progress.update(bar, completed=done.value)
