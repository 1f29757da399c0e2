"""Sends a task's slices from their source to a cluster, in the worker: records → batches → socket.

Several queues are sent concurrently, one batch of each in rotation: the Sender keeps a queue's order with one
batch in flight, and the next batches are encoded concurrently. A slice's progress advances only past acknowledged
messages, so every message is sent at least once. Nothing is written at the source. One thread.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, islice
from typing import Any

from firearrow._native.columnar.batch_encoder import BatchError, PropertyEdits, batch_body
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.store.log.record import Record
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import SendFailed
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange, Source, SourceReader
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.losses import ResumedSliceLosses
from firearrow.spark_tools.jobs.queue_mapping import Routing, queue_text, writable
from firearrow.spark_tools.jobs.rate_limit import UNLIMITED, RateLimits, TokenBucket
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import PendingSend, Sender

READ_BYTES = 8 << 20
BATCH_BYTES = 1 << 20
CHECKPOINT_S = 0.5
CONCURRENT_QUEUES = 4
WAITING_MAX = 4
"""Batches of a task in flight, or waiting for the previous one to the same queue."""
NAMED_MAX = 1000
"""Messages without a target that a slice names in the report."""


SliceSteps = Generator[None, None, None]
"""Each step sends a batch."""
DONE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTask:
    """Picklable; called in the worker with the slices of one task."""

    message_source: Source
    message_filter: MessageFilter
    target: Cluster
    routing: Routing
    job: str
    drop: frozenset[str]
    """Names of properties that are not sent."""
    provenance: bool = True
    rates: RateLimits = UNLIMITED
    """This task's share."""
    fail_on_data_loss: bool = True
    timeout_s: float = 60

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        buckets = TokenBucket(self.rates.messages), TokenBucket(self.rates.bytes)
        waiting: deque[SentStep] = deque()
        with self.message_source.open() as reader, Sender(self.target, timeout_s=self.timeout_s) as sender:

            def send_slices(queue: MessageQueue, queue_slices: Iterable[Slice]) -> SliceSteps:
                for slice_ in queue_slices:
                    progress = progress_files.read(slice_)
                    if progress.next < slice_.part.end:
                        slice_sender = SliceSender(
                            self, queue, progress, progress_files, sender, buckets, waiting
                        )
                        yield from self._send_slice(reader, slice_sender, slice_.part.end)

            groups = groupby(slices, key=lambda slice_: slice_.part.queue)
            round_robin([send_slices(queue, list(group)) for queue, group in groups], CONCURRENT_QUEUES)

    def _send_slice(self, reader: SourceReader, slice_sender: "SliceSender", end: int) -> SliceSteps:
        left = QueueRange(slice_sender.queue, slice_sender.progress.next, end)
        try:
            for spans in reader.read(left, self.message_filter, slice_sender.lost, bytes_max=READ_BYTES):
                yield from slice_sender.send(spans)
            slice_sender.settle(until=0)
            slice_sender.progress.next = end
        finally:
            slice_sender.write()


def round_robin(each: Iterable[SliceSteps], at_a_time: int) -> None:
    """Run one step of each in turn until all are finished; the ones after the first `at_a_time` start when
    one finishes."""
    left = iter(each)
    going = deque(islice(left, at_a_time))
    try:
        while going:
            one = going.popleft()
            going.extend([one] if next(one, DONE) is None else islice(left, 1))
    finally:
        for one in going:
            one.close()


@dataclass(frozen=True, slots=True)
class SentStep:
    """Advances a slice's progress, in the order of its messages."""

    progress: SliceProgress
    next: int
    """The source offset after it."""
    done: Callable[[], None]
    """Waits for the acknowledgement, if any, then counts. SendFailed."""


class SliceSender:
    """Sends one slice."""

    def __init__(
        self,
        of: SendTask,
        queue: MessageQueue,
        progress: SliceProgress,
        progress_files: ProgressFiles,
        sender: Sender,
        buckets: tuple[TokenBucket, TokenBucket],
        waiting: deque[SentStep],
    ) -> None:
        """`waiting`: steps of all slices of the task."""
        self.queue, self.progress, self._progress_files = queue, progress, progress_files
        self.lost = ResumedSliceLosses(progress, of.fail_on_data_loss)
        self._sender = sender
        self._buckets = buckets
        self._edits = PropertyEdits(of.drop, {}, (of.job, queue.broker_name) if of.provenance else None)
        self._route = of.routing.route(queue, cache(partial(writable, sender)))
        self._waiting = waiting
        self._written_at = time.monotonic()

    def send(self, spans: Spans) -> SliceSteps:
        for queue, stretch in self._route.of(spans):
            if queue is None:
                self._leave(stretch)
            else:
                yield from self._send(queue, stretch)

    def settle(self, until: int) -> None:
        """Finish the oldest steps until `until` are left, and advance their progress."""
        while len(self._waiting) > until:
            step = self._waiting.popleft()
            step.done()
            step.progress.next = step.next
        now = time.monotonic()
        if now - self._written_at >= CHECKPOINT_S:
            self.write()
            self._written_at = now

    def write(self) -> None:
        """Write the current progress."""
        self.lost.settle()
        self._progress_files.write(self.progress)

    def _send(self, queue: MessageQueue, spans: Spans) -> SliceSteps:
        first = 0
        while first < len(spans):
            try:
                batch = batch_body(spans, first, self._edits, bytes_max=BATCH_BYTES)
            except BatchError as error:
                raise SendFailed(f"{self.queue.topic}: {error}") from None
            first = batch.next
            self._buckets[0].acquire(batch.count)
            self._buckets[1].acquire(len(batch.body))
            self.settle(until=WAITING_MAX - 1)
            pending = self._sender.send_batch(
                queue, batch.body, batch.count, sys_flag=batch.sys_flag, born_ms=batch.born_ms
            )
            done = partial(self._acknowledged, pending, queue, batch.count, len(batch.body))
            self._waiting.append(SentStep(self.progress, spans.queue_offset(first - 1) + 1, done))
            yield

    def _acknowledged(self, pending: PendingSend, queue: MessageQueue, count: int, size: int) -> None:
        offsets = pending.wait()
        self.progress.count("messages", count)
        self.progress.count("bytes", size)
        targets = self.progress.detail.setdefault("targets", {})
        name = queue_text(queue)
        start, end = targets.get(name, (offsets[0], 0))
        targets[name] = [min(start, offsets[0]), max(end, offsets[-1] + 1)]

    def _leave(self, spans: Spans) -> None:
        """Report the messages instead of sending them."""
        following = spans.queue_offset(len(spans) - 1) + 1
        self._waiting.append(
            SentStep(
                self.progress,
                following,
                partial(
                    self._left,
                    len(spans),
                    [named(spans[index]) for index in range(min(len(spans), NAMED_MAX))],
                ),
            )
        )

    def _left(self, count: int, names: list[dict[str, Any]]) -> None:
        self.progress.count("unrouted", count)
        listed = self.progress.detail.setdefault("unrouted", [])
        listed.extend(names[: NAMED_MAX - len(listed)])


def named(record: Record) -> dict[str, Any]:
    """How a report names a message."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "uniqKey": record.properties.get("UNIQ_KEY", ""),
        "keys": record.properties.get("KEYS", ""),
    }
