"""What a task does: its ranges are read one behind the other and become Arrow batches, a chunk of the log at a time.

Travels to the worker by pickle; the reader is opened there, and closed with the last batch or when Spark has enough.
"""

import math
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
from firearrow.spark_tools.plan.splits import InputSplit

SIZES_ARE_OFF = 1.02
"""Sizes of ranges are often shares of larger ones."""


class RangePartition(InputPartition):
    """What one task reads. A kind of its own, because Spark makes a plain one when it is given none."""

    def __init__(self, part: InputSplit) -> None:
        super().__init__(part)
        self.part = part


@dataclass(frozen=True, slots=True)
class TaskReader:
    message_source: Source
    message_filter: MessageFilter
    columns: tuple[str, ...]
    options: SourceOptions

    def of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing for a partition that is not ours. DataLoss at the first range that is gone."""
        if not isinstance(partition, RangePartition):
            return
        setup_worker()
        options, lost = self.options, FailFast(self.options.fail_on_loss)
        message_filter = self.message_filter.of_columns(self.columns)
        with self.message_source.open() as reader:
            for part in partition.part:
                bytes_max = even(part.size, options.batch_bytes)
                for spans in reader.read(part, message_filter, lost, bytes_max=bytes_max):
                    yield from columns.record_batches(
                        spans, self.columns, part.queue.broker_name, open_bodies=options.open_bodies,
                        count_max=options.batch_rows, bytes_max=bytes_max,
                    )  # fmt: skip


def even(size: int, about: int) -> int:
    """Bytes of each batch of a range of `size`: no last one of a few rows, which costs as much as the others."""
    batches = max(1, round(size / about))
    return max(about, math.ceil(size / batches * SIZES_ARE_OFF))


def asked_columns(schema: StructType) -> tuple[str, ...]:
    """The names that a schema asks for. InvalidOption: a column that is none, or of another type."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    names = columns.column_names(tuple(wanted.names))
    for field in columns.schema(names):
        asked = wanted.field(field.name)
        if not asked.type.equals(field.type):
            raise InvalidOption(
                f"schema: {field.name} is {field.type}, not {asked.type}; cast it in a select"
            )
        if not asked.nullable:
            raise InvalidOption(f"schema: {field.name} cannot be `not null` here; leave that out")
    return names
