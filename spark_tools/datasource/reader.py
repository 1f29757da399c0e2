"""Batch read: plans partitions once and reads each in a task.

Planned in a separate process next to the driver, then pickled to the tasks. Spark pushes no filters: it keeps one
plan for each load, and would use the filters of one scan for all of them.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.datasource.rows import RangePartition, TaskReader
from firearrow.spark_tools.plan.batch import BatchPlan


class TableReader(DataSourceReader):
    def __init__(self, plan: BatchPlan, columns: tuple[str, ...]) -> None:
        self.plan = plan
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """TopicNotFound, InvalidOption, DataLoss. Spark needs a list."""
        return [RangePartition(part) for part in self.plan.parts()] if self._message_filter() else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        message_filter = self._message_filter()
        if message_filter is not None:
            yield from TaskReader(
                self.plan.message_source, message_filter, self.columns, self.plan.options
            ).of(partition)

    def _message_filter(self) -> MessageFilter | None:
        return self.plan.options.pushdown.message_filter(self.plan.options.message_filter())
