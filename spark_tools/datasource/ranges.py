"""A stream source whose rows are offset ranges instead of messages; used by the copy job.

Spark plans, limits and checkpoints; the workers fetch the messages of a range themselves, so that none pass
through the JVM. One partition, rows in the order of queues. Ranges that no longer exist, if that is allowed, and
queues that are read again from an earlier offset, as empty ranges, are rows of the next micro-batch: the
planner's process has no other way to report them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.rows import RangePartition
from firearrow.spark_tools.datasource.stream import StreamReader
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from firearrow.spark_tools.plan.source import source_of
from firearrow.spark_tools.plan.splits import InputSplit
from firearrow.spark_tools.plan.stream_offsets import StreamCursor

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("size", pa.int64()),
        ("gone", pa.string()),
        ("planned", pa.string()),
    ]
)
DDL = (
    "topic string, brokerName string, queueId int, start bigint, end bigint, size bigint, gone string, "
    "planned string"
)
Gone = tuple[QueueRange, str]
"""A missing range, and why."""


class RangeSource(DataSource):
    """Has the stream options of `rocketmq`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-ranges"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = SourceOptions.of(self.options, STREAM)
        return RangeStreamReader(source_of(options, self.options), options, ())


class PlannedPartition(RangePartition):
    def __init__(self, part: InputSplit, gone: tuple[Gone, ...], planned: StreamOffsets) -> None:
        super().__init__(part, planned)
        self.gone = gone


class RangeStreamReader(StreamReader):
    @cached_property
    def cursor(self) -> StreamCursor:
        return StreamCursor(
            self.rows.message_source, self.options, lost=lambda part, why: self.gone.append((part, why))
        )

    @cached_property
    def gone(self) -> list[Gone]:
        """Reported by the cursor since the last micro-batch was planned."""
        return []

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition; called once for each micro-batch."""
        found = tuple(part for each in super().partitions(start, end) for part in _parts(each))
        planned = StreamOffsets.of_json(end)
        gone = tuple(self.gone)
        self.gone.clear()
        return [PlannedPartition(found, gone, planned)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        planned = partition.planned if isinstance(partition, RangePartition) else None
        rows = [row_of(part, planned=planned) for part in _parts(partition)]
        if isinstance(partition, PlannedPartition):
            rows += [row_of(part, why) for part, why in partition.gone]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _parts(partition: InputPartition) -> tuple[QueueRange, ...]:
    return tuple(partition.part) if isinstance(partition, RangePartition) else ()


def row_of(
    part: QueueRange, gone: str | None = None, planned: StreamOffsets | None = None
) -> dict[str, object]:
    """`gone`: why the range cannot be fetched; `planned`: where the micro-batch ends."""
    queue = part.queue
    end = None if planned is None else orjson.dumps(planned.only([queue]).json()).decode()
    values = (queue.topic, queue.broker_name, queue.queue_id, part.start, part.end, part.size, gone, end)
    return dict(zip(SCHEMA.names, values, strict=True))


def range_of(row: Mapping[str, Any]) -> QueueRange:
    """The inverse of `row_of`."""
    queue = MessageQueue(row["topic"], row["brokerName"], row["queueId"])
    return QueueRange(queue, row["start"], row["end"], row["size"])


def planned_of(rows: Sequence[Mapping[str, Any]]) -> StreamOffsets:
    """Where the micro-batch of these rows ends."""
    found = StreamOffsets({})
    for text in {row["planned"] for row in rows if row["planned"] is not None}:
        one = StreamOffsets.of_json(orjson.loads(text))
        found.update(one)
        found.records |= one.records
    return found
