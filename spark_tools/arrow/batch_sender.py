"""BatchSender: sends Arrow batches of message columns to a cluster as batch requests for each queue.

At least once: `finish` returns when all messages are acknowledged. Delayed messages, timers and retry
topics are sent one by one, as brokers require. At most WINDOW_BYTES are in flight. One thread.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firearrow._native.columnar.batch_encoder import BATCH_COUNT_MAX
from firearrow._native.columnar.row_encoder import RowEncoder
from firearrow.client.base.compression import FLAGS, pack
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import CompressionKind
from firearrow.client.base.service_state import now_ms
from firearrow.spark_tools.arrow.message_columns import rows_of, whole_numbers
from firearrow.spark_tools.arrow.queue_partitioner import Indexes, QueueIdUse, RowRun, partition_rows
from firearrow.spark_tools.base.errors import InvalidOption, SendFailed, TopicNotFound

BATCH_BYTES = 1 << 20
WINDOW_BYTES = 32 << 20
COMPRESSION_BITS = 0x701
COMPRESSION_LEVEL = 5
"""Bits of a system flag: whether the body is compressed, and how."""


class PendingSend(Protocol):
    def wait(self) -> Sequence[int]:
        """Waits for the acknowledgement and returns the queue offsets of the messages. SendFailed."""


class MessageSender(Protocol):
    """What the BatchSender needs of `live.sender.Sender`."""

    def queues(self, topic: str) -> list[MessageQueue]: ...
    def send_batch(
        self, queue: MessageQueue, body: bytes, count: int, *, sys_flag: int = 0, born_ms: int = 0
    ) -> PendingSend: ...
    def send_one(
        self,
        queue: MessageQueue,
        flag: int,
        body: bytes,
        properties: bytes,
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        born_ms: int = 0,
    ) -> PendingSend: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """How rows become messages. Picklable. `topic` overrides the column; `job` names the source in
    provenance."""

    topic: str | None = None
    job: str | None = None
    queues: QueueIdUse = QueueIdUse.EXACT
    packed_bodies: bool = False
    compression: CompressionKind | None = None
    """Compresses each body; not with `packed_bodies`."""
    batch_bytes: int = BATCH_BYTES


@dataclass(slots=True)
class SentTotals:
    """The messages that the target has acknowledged. Picklable."""

    messages: int = 0
    bytes: int = 0
    queues: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest offset in each queue."""
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Messages and bytes by topic."""

    def __str__(self) -> str:
        return f"{self.messages} messages in {len(self.queues)} queues"

    def count(self, queue: MessageQueue, offsets: Sequence[int], size: int) -> None:
        """Add acknowledged messages; `offsets` ascend."""
        self.messages += len(offsets)
        self.bytes += size
        messages, sizes = self.topics.get(queue.topic, (0, 0))
        self.topics[queue.topic] = messages + len(offsets), sizes + size
        first, last = self.queues.get(queue, (offsets[0], offsets[-1]))
        self.queues[queue] = min(first, offsets[0]), max(last, offsets[-1])


def unique_ids(*parts: object) -> str:
    """The prefix of unique ids: 20 hex digits, equal for equal `parts`, so that messages sent twice can be
    recognised."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=10).hexdigest().upper()


def first_id(now: datetime) -> int:
    """The first number of ids created now: ms of the month as in Java's ids, then 16 bits for a counter."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int((now - month).total_seconds() * 1000) << 16


def runs(flags: Indexes, rows: Indexes) -> list[Indexes]:
    """Consecutive rows with the same compression: a batch has one system flag, and rows of a queue keep
    their order."""
    return np.split(rows, np.flatnonzero(np.diff(flags[rows])) + 1) if len(rows) else []


class BatchSender:
    """Call `send` for each batch, then `finish`. `ids`: see RowEncoder; the number grows by one with each
    row."""

    def __init__(
        self, sender: MessageSender, sink_settings: SinkSettings, ids: tuple[str, int] | None = None
    ) -> None:
        self.sent = SentTotals()
        self._sender = sender
        self._sink_settings = sink_settings
        self._ids = ids
        self._queues: dict[str, list[MessageQueue]] = {}
        self._next_index = int(ids[0], 16) if ids else 0
        self._pending: deque[tuple[PendingSend, MessageQueue, int]] = deque()
        self._in_flight_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows; `check_columns` has passed their schema. SendFailed, TopicNotFound, InvalidOption end
        the send."""
        if self._sink_settings.compression is not None:
            batch = with_packed_bodies(batch, self._sink_settings.compression)
        try:
            rows = rows_of(batch, job=self._sink_settings.job, ids=self._ids)
            for run in list(
                partition_rows(batch, self._sink_settings.topic, self._queues_of, self._sink_settings.queues)
            ):
                self._send_run(batch, rows, run)
        except ValueError as error:
            raise error if isinstance(error, InvalidOption) else InvalidOption(str(error)) from None
        if self._ids is not None:
            self._ids = self._ids[0], self._ids[1] + batch.num_rows

    def finish(self) -> SentTotals:
        """Waits until all messages are acknowledged. SendFailed."""
        self._wait_until(0)
        return self.sent

    def _send_run(self, batch: pa.RecordBatch, rows: RowEncoder, run: RowRun) -> None:
        delays = DelayColumns(batch)
        single = delays.is_delayed(run.rows) | run.topic.startswith(RETRY)
        flags = self._sys_flags(batch)
        for same_flag in runs(flags, run.rows[~single]):
            self._send_batches(rows, run, same_flag, int(flags[same_flag[0]]))
        for row in run.rows[single].tolist():
            flag, body, properties = rows.single(row)
            queue = run.queue or self._next_queue(run.topic)
            properties += delays.properties(row)
            pending = self._sender.send_one(
                queue, flag, body, properties, sys_flag=int(flags[row]), born_ms=now_ms()
            )
            self._add_pending(pending, queue, len(body) + len(properties))

    def _send_batches(self, rows: RowEncoder, run: RowRun, same_flag: Indexes, sys_flag: int) -> None:
        start = 0
        order = np.ascontiguousarray(same_flag).data
        while start < len(same_flag):
            body, stop = rows.batch(
                order, start, bytes_max=self._sink_settings.batch_bytes, count_max=BATCH_COUNT_MAX
            )
            queue = run.queue or self._next_queue(run.topic)
            pending = self._sender.send_batch(queue, body, stop - start, sys_flag=sys_flag, born_ms=now_ms())
            self._add_pending(pending, queue, len(body))
            start = stop

    def _sys_flags(self, batch: pa.RecordBatch) -> Indexes:
        kind = self._sink_settings.compression
        if kind is not None or not self._sink_settings.packed_bodies:
            return np.full(batch.num_rows, 0 if kind is None else FLAGS[kind], dtype=np.int64)
        return np.asarray(whole_numbers(batch.column("sysFlag"), null=0)) & COMPRESSION_BITS

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = self._sender.queues(topic)
            if not found:
                raise TopicNotFound(
                    f"topic {topic} has no writable queue at the target; change its permissions"
                )
        return found

    def _next_queue(self, topic: str) -> MessageQueue:
        self._next_index += 1
        queues = self._queues_of(topic)
        return queues[self._next_index % len(queues)]

    def _add_pending(self, pending: PendingSend, queue: MessageQueue, size: int) -> None:
        self._pending.append((pending, queue, size))
        self._in_flight_bytes += size
        self._wait_until(WINDOW_BYTES)

    def _wait_until(self, in_flight_max: int) -> None:
        """Wait for the oldest sends until at most `in_flight_max` bytes are in flight. SendFailed."""
        while self._pending and self._in_flight_bytes > in_flight_max:
            pending, queue, size = self._pending.popleft()
            self._in_flight_bytes -= size
            try:
                self.sent.count(queue, pending.wait(), size)
            except SendFailed as error:
                raise SendFailed(f"{error}; {self.sent} were sent before and remain at the target") from error


def with_packed_bodies(batch: pa.RecordBatch, kind: CompressionKind) -> pa.RecordBatch:
    """The batch with each body compressed by itself, as every consumer can open it."""
    index = batch.schema.get_field_index("body")
    bodies = batch.column(index).cast(pa.binary()).to_pylist()
    packed = [None if body is None else pack(kind, COMPRESSION_LEVEL, body)[1] for body in bodies]
    return batch.set_column(index, "body", pa.array(packed, pa.binary()))


class DelayColumns:
    """The columns delayLevel and deliverTime of a batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        none = np.zeros(batch.num_rows, dtype=np.int64)
        names = batch.schema.names
        self._levels = (
            np.asarray(whole_numbers(batch.column("delayLevel"), null=0)) if "delayLevel" in names else none
        )
        self._times = (
            np.asarray(_milliseconds(batch.column("deliverTime"))) if "deliverTime" in names else none
        )

    def is_delayed(self, rows: Indexes) -> np.ndarray:
        """Whether each of the rows is delayed. InvalidOption: a row has both columns, or a negative
        value."""
        levels, times = self._levels[rows], self._times[rows]
        if ((levels != 0) & (times != 0)).any():
            raise InvalidOption("columns delayLevel and deliverTime: a row has both; set one to null")
        if (levels < 0).any() or (times < 0).any():
            raise InvalidOption("columns delayLevel and deliverTime: negative in a row; null means no delay")
        return (levels > 0) | (times > 0)

    def properties(self, row: int) -> bytes:
        if self._levels[row]:
            return f"{Property.DELAY}\x01{self._levels[row]}\x02".encode()
        if self._times[row]:
            return f"{Property.TIMER_DELIVER_MS}\x01{self._times[row]}\x02".encode()
        return b""


def _milliseconds(column: pa.Array) -> memoryview:
    """Ms since 1970; 0 for null."""
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(
            pa.timestamp("ms", column.type.tz), safe=False
        )
    return whole_numbers(column, null=0)
