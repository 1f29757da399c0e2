"""Where messages are read from: what the files of stores and live brokers have in common.

An Origin is a description and travels to the workers by pickle; a Reader is opened where it is used, by one thread,
and reads: nothing is ever written at the source. Offsets are queue offsets, ends are exclusive, times ms since 1970.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets [start, end) of one queue; `size` log bytes, maybe an estimate, 0 if not known."""

    queue: MessageQueue
    start: int
    end: int
    size: int = 0

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        queue = self.queue
        return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}[{self.start}..{self.end})"


LMQ_PREFIX = "%LMQ%"
"""Of topics whose queues are light: their records hold the queue and the queue offset of another."""
OnDataLoss = Callable[[QueueRange, str], None]
"""Told of each range that was asked for and is not there, and why; raises DataLoss or counts it."""


class SourceReader(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def topics(self) -> list[str]:
        """All, those of the system included."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Those that can be read, sorted. TopicMissing."""

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        """First offset that is there, and the end."""

    def tail_losses(self, queues: Sequence[MessageQueue]) -> list[tuple[QueueRange, str]]:
        """What the source has behind the ends of these queues and cannot give, and why."""

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The first offset stored at `ms` or later; the end if there is none."""

    def bytes_of(self, part: QueueRange) -> int:
        """Log bytes of the range, an estimate where it must be one."""

    def read(
        self, part: QueueRange, message_filter: MessageFilter, on_data_loss: OnDataLoss, *, bytes_max: int
    ) -> Iterator[Spans]:
        """What is chosen of the range, in the queue's order; each about `bytes_max` at most."""

    def groups(self) -> dict[str, dict[MessageQueue, int]]:
        """Committed offsets of every consumer group."""


class Source(Protocol):
    """Picklable."""

    def open(self) -> SourceReader: ...

    def __str__(self) -> str:
        """How people name it: the folders, or the name servers."""
