"""Outgoing: Arrow batches of message columns on their way to a cluster, as batch requests of each queue.

At least once: `finish` is back when all is acknowledged. Delayed messages, timers and retry topics go one by one, as
brokers want them. Never more than a window of bytes is on the way. One thread.
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
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import RETRY
from firearrow.client.base.service_state import now_ms
from firearrow.spark_tools.arrow.message_columns import rows_of, whole_numbers
from firearrow.spark_tools.arrow.queue_partitioner import Indexes, QueueIdUse, RowRun, partition_rows
from firearrow.spark_tools.base.errors import InvalidOption, SendFailed, TopicNotFound

BATCH_BYTES = 1 << 20
WINDOW_BYTES = 32 << 20
PACKED_BITS = 0x701
"""Of a system flag: compressed or not, and how."""


class PendingSend(Protocol):
    def wait(self) -> Sequence[int]:
        """Queue offsets of what was sent. SendFailed."""


class MessageSender(Protocol):
    """What is asked of a Sender."""

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
    """How rows become messages. Picklable. `topic` overrides the column; `job` names the source in provenance."""

    topic: str | None = None
    job: str | None = None
    queues: QueueIdUse = QueueIdUse.EXACT
    packed_bodies: bool = False
    batch_bytes: int = BATCH_BYTES


@dataclass(slots=True)
class SentTotals:
    """What the target has acknowledged. Picklable."""

    messages: int = 0
    bytes: int = 0
    queues: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest offset of each."""

    def __str__(self) -> str:
        return f"{self.messages} messages in {len(self.queues)} queues"

    def count(self, queue: MessageQueue, offsets: Sequence[int], size: int) -> None:
        """`offsets` ascend."""
        self.messages += len(offsets)
        self.bytes += size
        first, last = self.queues.get(queue, (offsets[0], offsets[-1]))
        self.queues[queue] = min(first, offsets[0]), max(last, offsets[-1])


def unique_ids(*parts: object) -> str:
    """20 hex digits that say where rows come from: equal for equal parts, so that what is sent twice is recognised."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=10).hexdigest().upper()


def first_id(now: datetime) -> int:
    """A number for ids that begin now, where Java's ids have the time: ms of the month, and 16 bits to count with."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int((now - month).total_seconds() * 1000) << 16


def runs(flags: Indexes, rows: Indexes) -> list[Indexes]:
    """Rows one behind the other whose bodies are compressed alike: a batch has one system flag, a queue its order."""
    return np.split(rows, np.flatnonzero(np.diff(flags[rows])) + 1) if len(rows) else []


class BatchSender:
    """`send` batch after batch, then `finish`. `ids`: see Rows; the number goes on with each row."""

    def __init__(
        self, sender: MessageSender, sink_settings: SinkSettings, ids: tuple[str, int] | None = None
    ) -> None:
        self.sent = SentTotals()
        self._sender = sender
        self._sink_settings = sink_settings
        self._ids = ids
        self._queues: dict[str, list[MessageQueue]] = {}
        self._turn = int(ids[0], 16) if ids else 0
        self._waiting: deque[tuple[PendingSend, MessageQueue, int]] = deque()
        self._on_way_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Rows whose schema was checked. SendFailed, TopicNotFound, InvalidOption: none of what follows is sent."""
        try:
            rows = rows_of(batch, job=self._sink_settings.job, ids=self._ids)
            for run in list(
                partition_rows(batch, self._sink_settings.topic, self._queues_of, self._sink_settings.queues)
            ):
                self._send_stretch(batch, rows, run)
        except ValueError as error:
            raise error if isinstance(error, InvalidOption) else InvalidOption(str(error)) from None
        if self._ids is not None:
            self._ids = self._ids[0], self._ids[1] + batch.num_rows

    def finish(self) -> SentTotals:
        """All is acknowledged. SendFailed."""
        self._settle(0)
        return self.sent

    def _send_stretch(self, batch: pa.RecordBatch, rows: RowEncoder, run: RowRun) -> None:
        delays = DelayColumns(batch)
        alone = delays.given(run.rows) | run.topic.startswith(RETRY)
        flags = self._sys_flags(batch)
        for part in runs(flags, run.rows[~alone]):
            self._send_batches(rows, run, part, int(flags[part[0]]))
        for row in run.rows[alone].tolist():
            flag, body, properties = rows.single(row)
            queue = run.queue or self._next_queue(run.topic)
            properties += delays.properties(row)
            pending = self._sender.send_one(
                queue, flag, body, properties, sys_flag=int(flags[row]), born_ms=now_ms()
            )
            self._waits(pending, queue, len(body) + len(properties))

    def _send_batches(self, rows: RowEncoder, run: RowRun, part: Indexes, sys_flag: int) -> None:
        start = 0
        order = np.ascontiguousarray(part).data
        while start < len(part):
            body, stop = rows.batch(
                order, start, bytes_max=self._sink_settings.batch_bytes, count_max=BATCH_COUNT_MAX
            )
            queue = run.queue or self._next_queue(run.topic)
            pending = self._sender.send_batch(queue, body, stop - start, sys_flag=sys_flag, born_ms=now_ms())
            self._waits(pending, queue, len(body))
            start = stop

    def _sys_flags(self, batch: pa.RecordBatch) -> Indexes:
        if not self._sink_settings.packed_bodies:
            return np.zeros(batch.num_rows, dtype=np.int64)
        return np.asarray(whole_numbers(batch.column("sysFlag"), null=0)) & PACKED_BITS

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = self._sender.queues(topic)
            if not found:
                raise TopicNotFound(
                    f"topic {topic} has no queue at the target that takes messages; mend its permissions"
                )
        return found

    def _next_queue(self, topic: str) -> MessageQueue:
        self._turn += 1
        queues = self._queues_of(topic)
        return queues[self._turn % len(queues)]

    def _waits(self, pending: PendingSend, queue: MessageQueue, size: int) -> None:
        self._waiting.append((pending, queue, size))
        self._on_way_bytes += size
        self._settle(WINDOW_BYTES)

    def _settle(self, bytes_max: int) -> None:
        while self._waiting and self._on_way_bytes > bytes_max:
            pending, queue, size = self._waiting.popleft()
            self._on_way_bytes -= size
            try:
                self.sent.count(queue, pending.wait(), size)
            except SendFailed as error:
                raise SendFailed(f"{error}; {self.sent} are at the target already and stay there") from error


class DelayColumns:
    """What the columns delayLevel and deliverTime say of rows."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        none = np.zeros(batch.num_rows, dtype=np.int64)
        there = batch.schema.names
        self._levels = (
            np.asarray(whole_numbers(batch.column("delayLevel"), null=0)) if "delayLevel" in there else none
        )
        self._times = (
            np.asarray(_milliseconds(batch.column("deliverTime"))) if "deliverTime" in there else none
        )

    def given(self, rows: Indexes) -> np.ndarray:
        """Whether, for each of the rows. InvalidOption: both, or a level or a time below 0."""
        levels, times = self._levels[rows], self._times[rows]
        if ((levels != 0) & (times != 0)).any():
            raise InvalidOption("columns delayLevel and deliverTime: both in one row; leave one null")
        if (levels < 0).any() or (times < 0).any():
            raise InvalidOption("columns delayLevel and deliverTime: below 0 in a row; null is for no delay")
        return (levels > 0) | (times > 0)

    def properties(self, row: int) -> bytes:
        if self._levels[row]:
            return f"{Property.DELAY}\x01{self._levels[row]}\x02".encode()
        if self._times[row]:
            return f"{Property.TIMER_DELIVER_MS}\x01{self._times[row]}\x02".encode()
        return b""


def _milliseconds(column: pa.Array) -> memoryview:
    """0 for null."""
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(
            pa.timestamp("ms", column.type.tz), safe=False
        )
    return whole_numbers(column, null=0)
