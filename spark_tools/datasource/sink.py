"""The sink of a batch write: Spark's face of Outgoing. It is made in one process, writes in tasks and ends in a third:
what it holds travels by pickle.

At least once: a task that is tried again sends its rows again, with the same unique ids if they come in the same order.
Brokers take nothing back, so a write that fails leaves what was sent.
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
from firearrow.spark_tools.datasource.sink_options import BATCH, SinkOptions
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender


@dataclass
class TaskCommit(WriterCommitMessage):
    """What one task sent, all of it acknowledged."""

    sent: SentTotals


def table_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> "TableWriter":
    """Checked as far as it can be before a task runs. InvalidOption."""
    if overwrite:
        raise InvalidOption("mode overwrite: brokers keep what they have; write with .mode('append')")
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
    """All rows sent and acknowledged. SendFailed, TopicMissing, InvalidOption, Unreachable."""
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
        """The same for every attempt at a task of this write."""
        self.first_id = first_id(datetime.now(UTC))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        context = TaskContext.get()
        assert context is not None
        ids = unique_ids(self.run, context.partitionId()), self.first_id
        return TaskCommit(
            send_all(iterator, self.target, self.options.sink_settings(), ids, self.options.timeout_s)
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Says on stderr what is at the target all the same."""
        print(f"rocketmq sink: {report_aborted(messages)}", file=sys.stderr)


def report_aborted(messages: list[WriterCommitMessage | None]) -> str:
    done = [message.sent.messages for message in messages if isinstance(message, TaskCommit)]
    return (
        f"the write failed; the {sum(done)} messages of the {len(done)} finished of {len(messages)} tasks are at the "
        "target and stay there, as do those that the others had sent: written again they are there twice"
    )
