"""Stream read: plans micro-batches and reads their partitions.

Lives in one process next to the driver; a pickled copy reads in the tasks. Offsets are the JSON of
`plan.queue_records`. Spark never calls `stop`; it calls `commit` one batch late, and never for the last batch.
Nothing depends on either.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import Source
from firearrow.spark_tools.datasource.progress import publish
from firearrow.spark_tools.datasource.rows import RangePartition, TaskReader
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.plan.offsets import offsets_json
from firearrow.spark_tools.plan.options import SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from firearrow.spark_tools.plan.stream_offsets import StreamCursor


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        message_source: Source,
        options: SourceOptions,
        columns: tuple[str, ...],
        target: Cluster | None = None,
    ) -> None:
        self.options = options
        self.target = target
        self.rows = TaskReader(message_source, options.message_filter(), columns, options)

    @cached_property
    def cursor(self) -> StreamCursor:
        """Created on first use, so that it is never pickled to a task."""
        return StreamCursor(self.rows.message_source, self.options)

    def initialOffset(self) -> dict[str, Any]:
        return self.cursor.first().json()

    def prepareForTriggerAvailableNow(self) -> None:
        self.cursor.pin()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark supports one limit; `latestOffset` applies all of them unless Spark sets none."""
        options = self.options
        if options.trigger_messages:
            return ReadMaxRows(options.trigger_messages)
        if options.trigger_bytes:
            return ReadMaxBytes(options.trigger_bytes)
        return (
            ReadMinRows(options.trigger_messages_min) if options.trigger_messages_min else ReadAllAvailable()
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self.cursor.end(_read(start), not isinstance(limit, ReadAllAvailable)).json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return dict(offsets_json(self.cursor.newest()))

    def commit(self, end: dict[str, Any]) -> None:
        """One batch late, and never for the last; `GroupFollows` and the sink commit in time."""
        group = self.options.commit_group
        if group is not None and self.target is not None:
            publish(self.target, group, _read(end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = _read(end)
        return [RangePartition(part, planned) for part in self.cursor.parts(_read(start), planned)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.rows.of(partition)


def _read(offset: object) -> StreamOffsets:
    try:
        return StreamOffsets.of_json(offset)
    except ValueError as error:
        raise InvalidOption(f"checkpointLocation: its offsets are not of this source: {error}") from None
