"""A table read: parts are planned once, in a process beside the driver; each is read by a task.

Pickled to the tasks after planning. Filters are pushed before `partitions` is asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.datasource.filters import pushdown_of
from firearrow.spark_tools.datasource.rows import RangePartition, TaskReader
from firearrow.spark_tools.plan.batch import BatchPlan


class TableReader(DataSourceReader):
    def __init__(self, plan: BatchPlan, columns: tuple[str, ...]) -> None:
        self.plan = plan
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """TopicMissing, OptionWrong, DataLoss. Spark wants a list."""
        return [RangePartition(part) for part in self.plan.parts()] if self._message_filter() else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        message_filter = self._message_filter()
        if message_filter is not None:
            yield from TaskReader(
                self.plan.message_source, message_filter, self.columns, self.plan.options
            ).of(partition)

    def _message_filter(self) -> MessageFilter | None:
        return self.plan.pushdown.message_filter(self.plan.options.message_filter())


class PushdownReader(TableReader):
    """Reads less where the query's filters say so. For loads that are scanned once: Spark keeps one plan for each load,
    and hands it to all scans of it, also to those without a filter. Spark refuses it where push-down is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them back: Spark looks at each row again, the plan only gets narrower."""
        self.plan = replace(self.plan, pushdown=pushdown_of(filters))
        return filters
