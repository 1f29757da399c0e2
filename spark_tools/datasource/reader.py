"""A table read: parts are planned once, in a process beside the driver; each is read by a task.

Pickled to the tasks after planning. Filters are pushed before `partitions` is asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

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

    def partitions(self) -> list[InputPartition]:
        """TopicMissing, OptionWrong, DataLoss. Spark wants a list."""
        return [RangePartition(part) for part in self.plan.parts()] if self._choice() else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        choice = self._choice()
        if choice is not None:
            yield from Rows(self.plan.origin, choice, self.columns, self.plan.options).of(partition)

    def _choice(self) -> Choice | None:
        return self.plan.narrowing.choice(self.plan.options.choice())


class NarrowingReader(TableReader):
    """Reads less where the query's filters say so. For loads that are scanned once: Spark keeps one plan for each load,
    and hands it to all scans of it, also to those without a filter. Spark refuses it where push-down is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them back: Spark looks at each row again, the plan only gets narrower."""
        self.plan = replace(self.plan, narrowing=narrowing_of(filters))
        return filters
