"""Source and SourceReader: the common interface of store files and live brokers.

A Source is a description that is pickled for the workers; a SourceReader is opened in the worker and used
by one thread. It never writes to the source. Offsets are queue offsets, ends are exclusive, times are ms
since 1970.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets [start, end) of one queue; `size`: log bytes, may be an estimate, 0 if unknown."""

    queue: MessageQueue
    start: int
    end: int
    size: int = 0

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        queue = self.queue
        return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}[{self.start}..{self.end})"


@dataclass(frozen=True, slots=True)
class RecordId:
    """Identifies the record at a queue offset. A topic that is recreated, or a store that is restored and
    written to, has other records at the same queue offsets."""

    queue_offset: int
    physical_offset: int
    store_ms: int

    def is_later_than(self, other: Self) -> bool:
        """Whether it was stored after `other`. Physical offsets grow within a log, store times also from a
        broker's former log to its next one."""
        return self.physical_offset > other.physical_offset or self.store_ms > other.store_ms


LMQ_PREFIX = "%LMQ%"
"""Prefix of light queues: their records hold the topic, queue and queue offset of another queue."""
OnDataLoss = Callable[[QueueRange, str], None]
"""Called with each requested range that is missing, and the reason; raises DataLoss or counts it."""


class SourceReader(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def topics(self) -> list[str]:
        """All topics, including system topics."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted. TopicNotFound."""

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        """The first available offset of each queue, and its end."""

    def tail_losses(self, queues: Sequence[MessageQueue]) -> list[tuple[QueueRange, str]]:
        """Messages past the ends of these queues that the source has but cannot return, and why."""

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The first offset stored at `ms` or later; the end if there is none."""

    def bytes_of(self, part: QueueRange) -> int:
        """Log bytes of the range; an estimate if they are not known exactly."""

    def read(
        self, part: QueueRange, message_filter: MessageFilter, on_data_loss: OnDataLoss, *, bytes_max: int
    ) -> Iterator[Spans]:
        """The messages of the range that match, in queue order; each Spans has about `bytes_max` bytes at
        most."""

    def groups(self) -> dict[str, dict[MessageQueue, int]]:
        """The committed offsets of every consumer group."""


@runtime_checkable
class IdentifyingReader(Protocol):
    """A SourceReader that can tell records at the same queue offset apart."""

    def record_ids(self, places: Sequence[tuple[MessageQueue, int]]) -> list[RecordId | None]:
        """The records at these queue offsets, in the same order. None: there is no whole record."""


class Source(Protocol):
    """Picklable."""

    def open(self) -> SourceReader: ...

    def __str__(self) -> str:
        """The source for users: its folders, or its name servers."""
