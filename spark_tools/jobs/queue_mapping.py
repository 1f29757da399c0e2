"""Maps source queues to target queues; computed once, in the driver. Picklable.

In order: all messages of a source queue go to one target queue. Unordered: batches go round-robin to all queues of
the topic.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.client.send.queue_selection import same_queue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.live.sender import Sender

Queues = Callable[[str], Sequence[MessageQueue]]
"""The queues of a topic at the target, at least one. TopicNotFound."""


class Route(Protocol):
    """The route of one slice."""

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        """Slices of `spans` in their order, and the queue of each; None: not to be sent."""


class Routing(Protocol):
    """Picklable."""

    @property
    def in_order(self) -> bool:
        """Whether one task must forward all of a source queue."""

    def route(self, queue: MessageQueue, queues: Queues) -> Route:
        """The route for messages of a source queue; `queues` returns the target queues of a topic."""


@dataclass(frozen=True, slots=True)
class QueueRouting:
    """Keeps the order: one target queue for each source queue."""

    table: Mapping[MessageQueue, MessageQueue]
    in_order: bool = True

    def route(self, queue: MessageQueue, queues: Queues) -> "OneQueueRoute":
        return OneQueueRoute(self.table[queue])


@dataclass(frozen=True, slots=True)
class OneQueueRoute:
    queue: MessageQueue

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        yield self.queue, spans


@dataclass(frozen=True, slots=True)
class RoundRobinRouting:
    """No order: each chunk read goes to the next queue of the target topic."""

    queues: Mapping[str, Sequence[MessageQueue]]
    """By source topic."""
    in_order: bool = False

    def route(self, queue: MessageQueue, queues: Queues) -> "RoundRobinRoute":
        targets_of_topic = self.queues[queue.topic]
        first = queue.queue_id % len(targets_of_topic)
        return RoundRobinRoute(cycle([*targets_of_topic[first:], *targets_of_topic[:first]]))


@dataclass(slots=True)
class RoundRobinRoute:
    queue_cycle: Iterator[MessageQueue]

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        yield next(self.queue_cycle), spans


@dataclass(frozen=True, slots=True)
class QueueMapping:
    """Target queues by source queue, and the notes for the report."""

    table: dict[MessageQueue, MessageQueue] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    """Source queues whose target queue has another id."""


def map_queues(
    sources: Sequence[MessageQueue],
    targets: Mapping[str, Sequence[MessageQueue]],
    renamed: Callable[[str], str],
) -> QueueMapping:
    """A target queue for each source queue: at the broker of the same name if it has the topic, else at one
    chosen in turn; with the same id if it exists, else id % count. `targets` by target topic, none empty."""
    mapping = QueueMapping()
    brokers = sorted({queue.broker_name for queue in sources})
    for queue in sources:
        chosen = same_queue(queue, brokers, targets[renamed(queue.topic)])
        mapping.table[queue] = chosen
        if chosen.queue_id != queue.queue_id:
            mapping.moved.append(f"{queue_text(queue)} → {queue_text(chosen)}")
    return mapping


def writable(sender: Sender, topic: str) -> list[MessageQueue]:
    """The queues of a topic at the target, at least one. TopicNotFound."""
    found = sender.queues(topic)
    if not found:
        raise TopicNotFound(
            f"topic {topic} has no queue at the target that takes messages; correct its permissions"
        )
    return found


def queue_text(queue: MessageQueue) -> str:
    """`topic@broker:0`."""
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"


def queue_of(text: str) -> MessageQueue:
    """The inverse of `queue_text`. ValueError."""
    topic_and_broker, _, queue_id = text.rpartition(":")
    topic, _, broker = topic_and_broker.partition("@")
    return MessageQueue(topic, broker, int(queue_id))
