"""Stream write: sends each micro-batch, then reports it to Spark.

At least once: a repeated micro-batch sends its rows again, with the same unique ids. With `commitGroup`, the
offsets after its rows are committed at the source's brokers, never backwards, once the whole micro-batch is
acknowledged.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.batch_sender import unique_ids
from firearrow.spark_tools.arrow.message_columns import check_provenance
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.datasource.sink import TaskCommit, checked_schema, report_aborted, send_all
from firearrow.spark_tools.datasource.sink_options import STREAM, SinkOptions
from firearrow.spark_tools.live.client_link import SharedAdmin
from firearrow.spark_tools.live.cluster import Cluster

QUERY, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for a task."""
Offsets = dict[MessageQueue, int]


@dataclass
class StreamTaskCommit(TaskCommit):
    read: Offsets = field(default_factory=dict)
    """For each queue of the source, the offset after its last row."""


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":
    """InvalidOption."""
    if overwrite:
        raise InvalidOption(
            "outputMode complete: brokers cannot replace messages; write with .outputMode('append')"
        )
    options = SinkOptions.of(given, STREAM)
    arrow = checked_schema(schema, options)
    if options.commit_group is not None:
        check_provenance(arrow, "commitGroup")
    return StreamWriter(Cluster.of(given), options, options.source(given))


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark creates a new one for each commit, so `commit` sees only the messages that `write` returned."""

    def __init__(self, target: Cluster, options: SinkOptions, source: Cluster) -> None:
        self.target = target
        self.options = options
        self.source = source

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamTaskCommit:
        context = TaskContext.get()
        assert context is not None
        batch = [context.getLocalProperty(name) for name in (QUERY, BATCH_ID)]
        ids = unique_ids(*batch, context.partitionId()), 0
        read: Offsets = {}
        batches = iterator if self.options.commit_group is None else recording_offsets(iterator, read)
        sent = send_all(batches, self.target, self.options.sink_settings(), ids, self.options.timeout_s)
        return StreamTaskCommit(sent, read)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self.options.commit_group is not None:
            read = [message.read for message in messages if isinstance(message, StreamTaskCommit)]
            commit_offsets(self.source, self.options.commit_group, max_offsets(read), self.options.timeout_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        print(f"rocketmq sink: micro-batch {batchId}: {report_aborted(messages)}", file=sys.stderr)


def recording_offsets(batches: Iterator[pa.RecordBatch], read: Offsets) -> Iterator[pa.RecordBatch]:
    """Pass batches through; record the offset after each queue's last row in `read`."""
    for batch in batches:
        names = batch.schema.names
        columns = [
            "sourceTopic" if "sourceTopic" in names else "topic",
            "brokerName",
            "sourceQueueId" if "sourceQueueId" in names else "queueId",
        ]
        table = pa.Table.from_batches([batch.select([*columns, "queueOffset"])])
        found = table.group_by(columns, use_threads=False).aggregate([("queueOffset", "max")])
        for row in found.to_pylist():
            values = [row[name] for name in columns]
            if None in values or row["queueOffset_max"] is None:
                raise InvalidOption("commitGroup: a row has null in a column of where it was read")
            queue = MessageQueue(*values)
            read[queue] = max(read.get(queue, 0), row["queueOffset_max"] + 1)
        yield batch


def max_offsets(read: list[Offsets]) -> Offsets:
    found: Offsets = {}
    for offsets in read:
        for queue, offset in offsets.items():
            found[queue] = max(found.get(queue, 0), offset)
    return found


def commit_offsets(source: Cluster, group: str, offsets: Offsets, wait_s: float) -> None:
    """Never backwards. InvalidOption: a broker has no such group. Unreachable; ClientError."""

    async def forward(admin: Admin) -> None:
        for queue, offset in sorted(offsets.items()):
            if (await admin.offset(group, queue) or 0) < offset:
                await admin.update_offset(group, queue, offset)

    admin = SharedAdmin.acquire(source)
    try:
        admin.ask(forward, wait_s)
    except BrokerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        raise InvalidOption(
            f"commitGroup: {error.broker} has no group {group}; create it there, and restart the stream"
        ) from None
    finally:
        admin.release()
