"""Maps source queues to target queues; decided once, in the driver. Picklable.

In order: all of a source queue goes to one target queue. Unordered: batches go round all queues of the topic.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.live.sender import Sender

Queues = Callable[[str], Sequence[MessageQueue]]
"""Of a topic at the target, never none. TopicNotFound."""


class Route(Protocol):
    """Of one slice."""

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        """Slices of `spans` in their order, and the queue of each; None: not to be sent."""


class Routing(Protocol):
    """Picklable."""

    @property
    def in_order(self) -> bool:
        """All of a source queue must be forwarded by one task."""

    def route(self, queue: MessageQueue, queues: Queues) -> Route:
        """For messages of that source queue; `queues` are the target's of a topic, TopicNotFound."""


@dataclass(frozen=True, slots=True)
class QueueRouting:
    """Order kept: a target queue for each source queue."""

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
    """No order: one read after the other goes to the next queue of the target's topic."""

    queues: Mapping[str, Sequence[MessageQueue]]
    """By source topic."""
    in_order: bool = False

    def route(self, queue: MessageQueue, queues: Queues) -> "RoundRobinRoute":
        there = self.queues[queue.topic]
        first = queue.queue_id % len(there)
        return RoundRobinRoute(cycle([*there[first:], *there[:first]]))


@dataclass(slots=True)
class RoundRobinRoute:
    queue_cycle: Iterator[MessageQueue]

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        yield next(self.queue_cycle), spans


@dataclass(frozen=True, slots=True)
class QueueMapping:
    """Source queues and target queues face to face, as the report says it."""

    table: dict[MessageQueue, MessageQueue] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    """Source queues whose target queue has another id."""


def map_queues(
    sources: Sequence[MessageQueue],
    targets: Mapping[str, Sequence[MessageQueue]],
    renamed: Callable[[str], str],
) -> QueueMapping:
    """A target queue for each source queue: of the broker of the same name if the topic is there, else of one
    by turns; with the same id if there is one, else id % count. `targets` by target topic, none empty."""
    mapping = QueueMapping()
    brokers = sorted({queue.broker_name for queue in sources})
    for queue in sources:
        there = targets[renamed(queue.topic)]
        names = sorted({each.broker_name for each in there})
        name = (
            queue.broker_name
            if queue.broker_name in names
            else names[brokers.index(queue.broker_name) % len(names)]
        )
        at_broker = sorted(each for each in there if each.broker_name == name)
        same = [each for each in at_broker if each.queue_id == queue.queue_id]
        chosen = same[0] if same else at_broker[queue.queue_id % len(at_broker)]
        mapping.table[queue] = chosen
        if not same:
            mapping.moved.append(f"{queue_text(queue)} → {queue_text(chosen)}")
    return mapping


def writable(sender: Sender, topic: str) -> list[MessageQueue]:
    """The queues of a topic at the target, never none. TopicNotFound."""
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
    """What `queue_text` made. ValueError."""
    place, _, queue_id = text.rpartition(":")
    topic, _, broker = place.partition("@")
    return MessageQueue(topic, broker, int(queue_id))
