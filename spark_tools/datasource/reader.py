"""A table read: parts are planned once, in a process beside the driver; each is read by a task.

Pickled to the tasks after planning. Filters are pushed before `partitions` is asked for, if at all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.datasource.filters import narrowing_of
from firearrow.spark_tools.datasource.rows import RangePartition, Rows
from firearrow.spark_tools.plan.batch import BatchPlan


class TableReader(DataSourceReader):
    def __init__(self, plan: BatchPlan, columns: tuple[str, ...]) -> None:
        self.plan = plan
        self.columns = columns

    @property
    def pushFilters(self) -> "Pushing":
        return Pushing(self)

    def push(self, filters: list[Filter]) -> None:
        self.plan = replace(self.plan, narrowing=narrowing_of(filters))

    def partitions(self) -> list[InputPartition]:
        """TopicMissing, OptionWrong, DataLoss. Spark wants a list."""
        return [RangePartition(part) for part in self.plan.parts()] if self._choice() else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        choice = self._choice()
        if choice is not None:
            yield from Rows(self.plan.origin, choice, self.columns, self.plan.options).of(partition)

    def _choice(self) -> Choice | None:
        return self.plan.narrowing.choice(self.plan.options.choice())


@dataclass(frozen=True, slots=True)
class Pushing:
    """`reader.pushFilters`, called only where push-down is on.

    Where it is off, Spark refuses readers whose method is not the inherited one, and a reader cannot see which it is.
    Ours is right either way, so it shows Spark the inherited one.
    """

    reader: TableReader
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them back: Spark looks at each row again, the plan only gets narrower."""
        self.reader.push(filters)
        return filters
