"""Routes dead letters to the topics that they came from.

Uses only properties. Equal sharding keys go to one queue, the one that Java's client chooses; others go
round-robin.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from firearrow._native.columnar.record_spans import Spans
from firearrow._native.protocol.name_rules import is_system_topic
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.send.queue_selection import hash_index
from firearrow.spark_tools.jobs.queue_mapping import Queues

ORIGIN_PROPERTIES = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "REAL_TOPIC")
"""The most reliable first: brokers set RETRY_TOPIC when they store retries or dead letters; REAL_TOPIC is the topic
of the last delay, which is the retry topic if the message was redelivered."""
RUN_MAX = 64
"""Dead letters sent to one queue before the next queue is used."""


def origin(group: str, properties: Mapping[str, str]) -> str | None:
    """The topic that a dead letter of `group` was sent to; None: unknown."""
    for name in ORIGIN_PROPERTIES:
        topic = properties.get(name, "")
        for prefix in (
            f"{RETRY}{group}+",
            f"{RETRY}{group}_",
        ):  # retries of POP, which have the topic in their name
            topic = topic.removeprefix(prefix)
        if topic and not topic.startswith((RETRY, DLQ)) and not is_system_topic(topic):
            return topic
    return None


@dataclass(frozen=True, slots=True)
class DeadLetterRouting:
    """A Routing. `elsewhere`: topics by origin; None: for all others."""

    elsewhere: Mapping[str | None, str]
    in_order: bool = True

    def route(self, queue: MessageQueue, queues: Queues) -> "DeadLetterRoute":
        return DeadLetterRoute(queue.topic.removeprefix(DLQ), self.elsewhere, queues)


@dataclass(slots=True)
class DeadLetterRoute:
    group: str
    elsewhere: Mapping[str | None, str]
    queues: Queues
    next_queue: dict[str, int] = field(default_factory=dict)
    """Dead letters routed round-robin so far, by topic."""

    def of(self, spans: Spans) -> Iterator[tuple[MessageQueue | None, Spans]]:
        first, before = 0, None
        for index in range(len(spans)):
            queue = self._queue(spans.properties(index))
            if index and queue != before:
                yield before, spans.slice(first, index)
                first = index
            before = queue
        if len(spans):
            yield before, spans.slice(first, len(spans))

    def _queue(self, properties: Mapping[str, str]) -> MessageQueue | None:
        origin_topic = origin(self.group, properties)
        topic = self.elsewhere.get(origin_topic, self.elsewhere.get(None, origin_topic))
        if topic is None:
            return None
        queues = self.queues(topic)
        key = properties.get("__SHARDINGKEY")
        if key is not None:
            return queues[hash_index(key, len(queues))]
        number = self.next_queue.get(topic, 0)
        self.next_queue[topic] = number + 1
        return queues[number // RUN_MAX % len(queues)]
