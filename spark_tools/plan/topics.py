"""Selects topics and queues, and waits until a topic exists.

Topics by name or pattern, or queues by id. Calls a SourceReader; keeps no state. One thread.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.protocol.name_rules import is_system_topic
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from firearrow.spark_tools.base.source import SourceReader
from firearrow.spark_tools.plan.offsets import queue_ids
from firearrow.spark_tools.plan.option_parsing import json_object

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class AssignedQueues:
    """Queues of one topic, at one broker or (None) at every broker."""

    topic: str
    broker_name: str | None
    queue_ids: frozenset[int]

    def of(self, there: list[MessageQueue]) -> list[MessageQueue]:
        """Those of them that are there."""
        return [
            q for q in there if self.broker_name in (None, q.broker_name) and q.queue_id in self.queue_ids
        ]

    def queues(self, there: list[MessageQueue]) -> list[MessageQueue]:
        """TopicNotFound names the queues that do not exist."""
        found = self.of(there)
        missing = self.queue_ids - {q.queue_id for q in found}
        if missing:
            where = f" at broker {self.broker_name}" if self.broker_name is not None else ""
            raise TopicNotFound(
                f"topic {self.topic}{where} has no queue {_listed(missing)}; assign only existing queues"
            )
        return found


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """At most one of the three is set. None of them: all topics but system, retry and dead letter topics."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[AssignedQueues, ...] = ()

    def queues(self, reader: SourceReader) -> list[MessageQueue]:
        """The queues, sorted. TopicNotFound: a named topic does not exist, or nothing matches."""
        found = self.queues_there(reader)
        if not found:
            what = f"topicPattern {self.pattern} matches no topic" if self.pattern else "no topic found"
            raise TopicNotFound(f"{what}; existing topics: {_listed(_common(reader.topics()))}")
        return found

    def queues_there(self, reader: SourceReader) -> list[MessageQueue]:
        """Like `queues`, but a pattern may match nothing yet."""
        if self.assigned:
            found = {q for each in self.assigned for q in each.queues(reader.queues(each.topic))}
        else:
            found = {q for topic in self._topics(reader) for q in reader.queues(topic)}
        return sorted(found)

    def singly(self) -> "list[TopicSelection]":
        """The same selection as one for each topic, since each can be missing separately."""
        if not (self.topics or self.assigned):
            return [self]
        return [TopicSelection((topic,)) for topic in self.topics] + [
            TopicSelection(assigned=(each,)) for each in self.assigned
        ]

    def _topics(self, reader: SourceReader) -> list[str]:
        if self.topics:
            return list(self.topics)
        if self.pattern is None:
            return _common(reader.topics())
        expression = re.compile(self.pattern)
        there = [topic for topic in reader.topics() if not is_system_topic(topic)]
        if "%" not in self.pattern:
            there = _common(there)
        return [topic for topic in there if expression.fullmatch(topic)]


def assigned(text: str) -> tuple[AssignedQueues, ...]:
    """`{"topic": [0, 1]}`, or `{"topic": {"broker": [0, 1]}}`."""
    found: list[AssignedQueues] = []
    for topic, value in json_object(text).items():
        if isinstance(value, dict):
            found += [AssignedQueues(topic, broker, queue_ids(ids)) for broker, ids in value.items()]
        else:
            found.append(AssignedQueues(topic, None, queue_ids(value)))
    if not found:
        raise ValueError('expected queues such as {"topic": {"broker": [0, 1]}}')
    return tuple(found)


def check_one_selection(
    topics: tuple[str, ...], pattern: str | None, queues: tuple[AssignedQueues, ...]
) -> TopicSelection:
    """InvalidOption: more than one of them is set."""
    if sum(map(bool, (topics, pattern, queues))) > 1:
        raise InvalidOption("topic, topicPattern and assign exclude each other: set only one of them")
    return TopicSelection(topics, pattern, queues)


def when_there(
    ask: Callable[[], list[MessageQueue]],
    wait_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> list[MessageQueue]:
    """Call `ask`; while it raises TopicNotFound, call it again each second for up to `wait_s`."""
    deadline = clock() + wait_s
    while True:
        try:
            return ask()
        except TopicNotFound as missing:
            left = deadline - clock()
            if left <= 0:
                waited = f" (waited {wait_s:g} s)" if wait_s else "; set waitForTopic to wait for it"
                raise TopicNotFound(f"{missing}{waited}") from None
            pause(min(RETRY_S, left))


def _common(topics: list[str]) -> list[str]:
    """Sorted, without system, retry and dead letter topics."""
    return sorted(topic for topic in topics if not is_system_topic(topic) and not topic.startswith("%"))


def _listed(names: list[str] | frozenset[int]) -> str:
    shown = sorted(names, key=str)
    return ", ".join(map(str, shown[:20])) + (" …" if len(shown) > 20 else "") if shown else "none"
