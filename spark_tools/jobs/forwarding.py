"""Forwarding: a task's slices from their source to a cluster, in the worker: records → batches → socket.

A few queues go abreast, a batch of each in turn: of one queue only one batch may be on the way, as the Sender keeps
its order, and the next ones are encoded meanwhile. A slice's mark moves only over what the target has acknowledged:
whatever happens, a message is sent at least once. Nothing is written at the source. One thread.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, islice
from typing import Any

from firearrow._native.bulk.batches import BatchError, Edits, batch_body
from firearrow._native.bulk.spans import Spans
from firearrow._native.store.record import Record
from firearrow.client.message import MessageQueue
from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.errors import SendFailed
from firearrow.spark_tools.jobs.losses import LossesAhead
from firearrow.spark_tools.jobs.marks import Mark, Marks, Slice
from firearrow.spark_tools.jobs.pace import UNLIMITED, Bucket, Rates
from firearrow.spark_tools.jobs.routing import Routing, queue_text, writable
from firearrow.spark_tools.live.sender import Pending, Sender
from firearrow.spark_tools.live.target import Target
from firearrow.spark_tools.origin import Origin, QueueRange, Reader

READ_BYTES = 8 << 20
BATCH_BYTES = 1 << 20
MARK_S = 0.5
QUEUES_ABREAST = 4
WAITING_MAX = 4
"""A task's batches that are on the way, or wait for the one before them to the same queue."""
NAMED_MAX = 1000
"""Messages without a target that a slice names in the report."""


Passing = Generator[None, None, None]
"""A step is a batch that was sent."""
OVER = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """Picklable; called in the worker with the slices of one task."""

    origin: Origin
    choice: Choice
    target: Target
    routing: Routing
    job: str
    drop: frozenset[str]
    """Names of properties that do not go along."""
    provenance: bool = True
    rates: Rates = UNLIMITED
    """This task's share."""
    fail_on_data_loss: bool = True
    timeout_s: float = 60

    def __call__(self, slices: Sequence[Slice], marks: Marks) -> None:
        buckets = Bucket(self.rates.messages), Bucket(self.rates.bytes)
        waiting: deque[Step] = deque()
        with self.origin.open() as reader, Sender(self.target, timeout_s=self.timeout_s) as sender:

            def passing(queue: MessageQueue, pieces: Iterable[Slice]) -> Passing:
                for piece in pieces:
                    mark = marks.read(piece)
                    if mark.next < piece.part.end:
                        passage = Passage(self, queue, mark, marks, sender, buckets, waiting)
                        yield from self._pass(reader, passage, piece.part.end)

            groups = groupby(slices, key=lambda piece: piece.part.queue)
            in_turn([passing(queue, list(pieces)) for queue, pieces in groups], QUEUES_ABREAST)

    def _pass(self, reader: Reader, passage: "Passage", end: int) -> Passing:
        left = QueueRange(passage.queue, passage.mark.next, end)
        try:
            for spans in reader.read(left, self.choice, passage.lost, bytes_max=READ_BYTES):
                yield from passage.send(spans)
            passage.settle(until=0)
            passage.mark.next = end
        finally:
            passage.write()


def in_turn(each: Iterable[Passing], at_a_time: int) -> None:
    """A step of each, again and again, until all are over; who comes behind the first ones begins when one is over."""
    left = iter(each)
    going = deque(islice(left, at_a_time))
    try:
        while going:
            one = going.popleft()
            going.extend([one] if next(one, OVER) is None else islice(left, 1))
    finally:
        for one in going:
            one.close()


@dataclass(frozen=True, slots=True)
class Step:
    """What moves a slice's mark, in the order of its messages."""

    mark: Mark
    next: int
    """The source offset behind it."""
    done: Callable[[], None]
    """Waits for the acknowledgement if there is one to come, then counts. SendFailed."""


class Passage:
    """One slice on its way."""

    def __init__(
        self,
        of: Forwarding,
        queue: MessageQueue,
        mark: Mark,
        marks: Marks,
        sender: Sender,
        buckets: tuple[Bucket, Bucket],
        waiting: deque[Step],
    ) -> None:
        """`waiting`: of all passages of the task."""
        self.queue, self.mark, self._marks = queue, mark, marks
        self.lost = LossesAhead(mark, of.fail_on_data_loss)
        self._sender = sender
        self._buckets = buckets
        self._edits = Edits(of.drop, {}, (of.job, queue.broker_name) if of.provenance else None)
        self._route = of.routing.route(queue, cache(partial(writable, sender)))
        self._waiting = waiting
        self._marked_at = time.monotonic()

    def send(self, spans: Spans) -> Passing:
        for queue, stretch in self._route.of(spans):
            if queue is None:
                self._leave(stretch)
            else:
                yield from self._send(queue, stretch)

    def settle(self, until: int) -> None:
        """The oldest steps are finished, until so many are left, and their marks move behind them."""
        while len(self._waiting) > until:
            step = self._waiting.popleft()
            step.done()
            step.mark.next = step.next
        now = time.monotonic()
        if now - self._marked_at >= MARK_S:
            self.write()
            self._marked_at = now

    def write(self) -> None:
        """The mark as it stands."""
        self.lost.settle()
        self._marks.write(self.mark)

    def _send(self, queue: MessageQueue, spans: Spans) -> Passing:
        first = 0
        while first < len(spans):
            try:
                batch = batch_body(spans, first, self._edits, bytes_max=BATCH_BYTES)
            except BatchError as error:
                raise SendFailed(f"{self.queue.topic}: {error}") from None
            first = batch.next
            self._buckets[0].take(batch.count)
            self._buckets[1].take(len(batch.body))
            self.settle(until=WAITING_MAX - 1)
            pending = self._sender.send_batch(
                queue, batch.body, batch.count, sys_flag=batch.sys_flag, born_ms=batch.born_ms
            )
            done = partial(self._acknowledged, pending, queue, batch.count, len(batch.body))
            self._waiting.append(Step(self.mark, spans.queue_offset(first - 1) + 1, done))
            yield

    def _acknowledged(self, pending: Pending, queue: MessageQueue, count: int, size: int) -> None:
        offsets = pending.wait()
        self.mark.count("messages", count)
        self.mark.count("bytes", size)
        places = self.mark.detail.setdefault("targets", {})
        name = queue_text(queue)
        start, end = places.get(name, (offsets[0], 0))
        places[name] = [min(start, offsets[0]), max(end, offsets[-1] + 1)]

    def _leave(self, spans: Spans) -> None:
        """Told, not sent."""
        following = spans.queue_offset(len(spans) - 1) + 1
        self._waiting.append(
            Step(
                self.mark,
                following,
                partial(
                    self._left,
                    len(spans),
                    [named(spans[index]) for index in range(min(len(spans), NAMED_MAX))],
                ),
            )
        )

    def _left(self, count: int, names: list[dict[str, Any]]) -> None:
        self.mark.count("unrouted", count)
        told = self.mark.detail.setdefault("unrouted", [])
        told.extend(names[: NAMED_MAX - len(told)])


def named(record: Record) -> dict[str, Any]:
    """How a report names a message."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "uniqKey": record.properties.get("UNIQ_KEY", ""),
        "keys": record.properties.get("KEYS", ""),
    }
