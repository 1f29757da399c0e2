"""Reads the ranges of one task as Arrow batches.

Pickled to the worker. The reader is opened there, and closed after the last batch or when Spark needs no
more.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from firearrow.spark_tools.arrow import columns
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import Source
from firearrow.spark_tools.base.worker_setup import setup_worker
from firearrow.spark_tools.plan.data_loss import FailFast
from firearrow.spark_tools.plan.options import SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets, report_changed
from firearrow.spark_tools.plan.splits import InputSplit
from firearrow.spark_tools.tables.dataset import batches_of


class RangePartition(InputPartition):
    """What one task reads. A subclass, because Spark makes a plain InputPartition when it gets none."""

    def __init__(self, part: InputSplit, planned: StreamOffsets | None = None) -> None:
        """`planned`: of a stream, where the micro-batch ends."""
        super().__init__(part)
        self.part = part
        self.planned = None if planned is None else planned.only({each.queue: None for each in part})


@dataclass(frozen=True, slots=True)
class TaskReader:
    message_source: Source
    message_filter: MessageFilter
    columns: tuple[str, ...]
    options: SourceOptions

    def of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields nothing for a partition of another class. DataLoss at the first missing range."""
        if not isinstance(partition, RangePartition):
            return
        setup_worker()
        lost = FailFast(self.options.fail_on_loss)
        with self.message_source.open() as reader:
            yield from batches_of(
                reader, partition.part, self.message_filter, self.columns, self.options, lost
            )
            if partition.planned is not None:
                report_changed(reader, partition.part, partition.planned, lost)


def asked_columns(schema: StructType) -> tuple[str, ...]:
    """The column names of a schema. InvalidOption: an unknown column, or one of another type."""
    requested = to_arrow_schema(schema, timezone="UTC")
    names = columns.column_names(tuple(requested.names))
    for field in columns.schema(names):
        requested_field = requested.field(field.name)
        if not requested_field.type.equals(field.type):
            raise InvalidOption(
                f"schema: {field.name} is {field.type}, not {requested_field.type}; cast it in a select"
            )
        if not requested_field.nullable:
            raise InvalidOption(f"schema: {field.name} cannot be `not null`; remove that")
    return names
