"""Which queues are wanted: topics by name or pattern, or queues by number; and waiting for topics to be there.

Asks a Reader; keeps nothing. One thread.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import is_system_topic
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from firearrow.spark_tools.base.source import SourceReader
from firearrow.spark_tools.plan.offsets import queue_ids
from firearrow.spark_tools.plan.option_parsing import json_object

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class AssignedQueues:
    """Queues of one topic, at one broker or (None) at each."""

    topic: str
    broker_name: str | None
    queue_ids: frozenset[int]

    def queues(self, there: list[MessageQueue]) -> list[MessageQueue]:
        """TopicNotFound names queues that are not there."""
        of_broker = [q for q in there if self.broker_name in (None, q.broker_name)]
        found = [q for q in of_broker if q.queue_id in self.queue_ids]
        missing = self.queue_ids - {q.queue_id for q in found}
        if missing:
            where = f" at broker {self.broker_name}" if self.broker_name is not None else ""
            raise TopicNotFound(
                f"topic {self.topic}{where} has no queue {_listed(missing)}; assign those that are there"
            )
        return found


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """One of the three; none of them: all topics that people made."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[AssignedQueues, ...] = ()

    def queues(self, reader: SourceReader) -> list[MessageQueue]:
        """Sorted. TopicNotFound if one that was named is not there, or nothing matches."""
        found = self.queues_there(reader)
        if not found:
            what = f"topicPattern {self.pattern} matches no topic" if self.pattern else "there is no topic"
            raise TopicNotFound(f"{what}; there are: {_listed(_common(reader.topics()))}")
        return found

    def queues_there(self, reader: SourceReader) -> list[MessageQueue]:
        """The same, but a pattern may match nothing yet."""
        if self.assigned:
            found = {q for each in self.assigned for q in each.queues(reader.queues(each.topic))}
        else:
            found = {q for topic in self._topics(reader) for q in reader.queues(topic)}
        return sorted(found)

    def singly(self) -> "list[TopicSelection]":
        """The same in as many as can be missing, each for itself."""
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
        wanted = re.compile(self.pattern)
        there = [topic for topic in reader.topics() if not is_system_topic(topic)]
        if "%" not in self.pattern:
            there = _common(there)
        return [topic for topic in there if wanted.fullmatch(topic)]


def assigned(text: str) -> tuple[AssignedQueues, ...]:
    """`{"topic": [0, 1]}`, or `{"topic": {"broker": [0, 1]}}`."""
    found: list[AssignedQueues] = []
    for topic, value in json_object(text).items():
        if isinstance(value, dict):
            found += [AssignedQueues(topic, broker, queue_ids(ids)) for broker, ids in value.items()]
        else:
            found.append(AssignedQueues(topic, None, queue_ids(value)))
    if not found:
        raise ValueError('queues are wanted, as {"topic": {"broker": [0, 1]}}')
    return tuple(found)


def check_one_selection(
    topics: tuple[str, ...], pattern: str | None, queues: tuple[AssignedQueues, ...]
) -> TopicSelection:
    """InvalidOption: more than one way to choose."""
    if sum(map(bool, (topics, pattern, queues))) > 1:
        raise InvalidOption("topic, topicPattern and assign exclude each other: give one of them")
    return TopicSelection(topics, pattern, queues)


def when_there(
    ask: Callable[[], list[MessageQueue]],
    wait_s: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> list[MessageQueue]:
    """What `ask` gives, asked again each second for `wait_s` while it raises TopicNotFound."""
    deadline = clock() + wait_s
    while True:
        try:
            return ask()
        except TopicNotFound as missing:
            left = deadline - clock()
            if left <= 0:
                waited = f" (waited {wait_s:g} s)" if wait_s else "; waitForTopic waits for it"
                raise TopicNotFound(f"{missing}{waited}") from None
            pause(min(RETRY_S, left))


def _common(topics: list[str]) -> list[str]:
    """Without those of the system, of retries and of dead letters."""
    return sorted(topic for topic in topics if not is_system_topic(topic) and not topic.startswith("%"))


def _listed(names: list[str] | frozenset[int]) -> str:
    shown = sorted(names, key=str)
    return ", ".join(map(str, shown[:20])) + (" …" if len(shown) > 20 else "") if shown else "none"
