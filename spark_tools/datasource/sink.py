"""Batch write: each task sends its rows.

Created in one process, used in tasks, committed in a third; pickled in between. At least once: a retried task
sends its rows again, with the same unique ids if they come in the same order. Brokers cannot roll back, so a
failed write leaves what was sent.
"""

import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from firearrow.spark_tools.arrow.batch_sender import (
    BatchSender,
    SentTotals,
    SinkSettings,
    first_id,
    unique_ids,
)
from firearrow.spark_tools.arrow.message_columns import check_columns
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.worker_setup import setup_worker
from firearrow.spark_tools.datasource.sink_options import BATCH, SinkOptions
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender


@dataclass
class TaskCommit(WriterCommitMessage):
    """What one task sent; all of it is acknowledged."""

    sent: SentTotals


def table_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> "TableWriter":
    """Check what can be checked before a task runs. InvalidOption."""
    if overwrite:
        raise InvalidOption("mode overwrite: brokers cannot replace messages; write with .mode('append')")
    options = SinkOptions.of(given, BATCH)
    checked_schema(schema, options)
    return TableWriter(Cluster.of(given), options)


def checked_schema(schema: StructType, options: SinkOptions) -> pa.Schema:
    arrow = to_arrow_schema(schema, timezone="UTC")
    check_columns(arrow, options.topic, options.provenance, options.packed_bodies)
    return arrow


def send_all(
    batches: Iterator[pa.RecordBatch],
    target: Cluster,
    sink_settings: SinkSettings,
    ids: tuple[str, int],
    timeout_s: float,
) -> SentTotals:
    """Send all rows and wait until they are acknowledged. SendFailed, TopicNotFound, InvalidOption,
    Unreachable."""
    setup_worker()
    with Sender(target, timeout_s=timeout_s) as sender:
        batch_sender = BatchSender(sender, sink_settings, ids)
        for batch in batches:
            batch_sender.send(batch)
        return batch_sender.finish()


class TableWriter(DataSourceArrowWriter):
    def __init__(self, target: Cluster, options: SinkOptions) -> None:
        self.target = target
        self.options = options
        self.run = uuid.uuid4().hex
        """The same for every attempt of a task of this write."""
        self.first_id = first_id(datetime.now(UTC))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        context = TaskContext.get()
        assert context is not None
        ids = unique_ids(self.run, context.partitionId()), self.first_id
        return TaskCommit(
            send_all(iterator, self.target, self.options.sink_settings(), ids, self.options.timeout_s)
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Print on stderr what the target stored nevertheless."""
        print(f"rocketmq sink: {report_aborted(messages)}", file=sys.stderr)


def report_aborted(messages: list[WriterCommitMessage | None]) -> str:
    done = [message.sent.messages for message in messages if isinstance(message, TaskCommit)]
    return (
        f"the write failed; {len(done)} of {len(messages)} tasks finished, and the target keeps their {sum(done)} "
        "messages and those that other tasks sent before they failed: writing again duplicates them"
    )
