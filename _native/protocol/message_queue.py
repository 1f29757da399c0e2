"""MessageQueue: one queue of a topic at one broker, and how the members of a group split queues, as Apache does.

Queues and members are sorted as Java sorts them. Every member computes the same split, so each queue has
exactly one owner. A member that is not listed gets no queue. Pure; any thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import TypeVar

Queue = TypeVar("Queue")


@total_ordering
@dataclass(frozen=True, slots=True)
class MessageQueue:
    """One queue of a topic at one broker.

    Queues sort as in Java's clients, so that mixed groups split them in the same way.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __lt__(self, other: "MessageQueue") -> bool:
        if self.topic != other.topic:
            return java_order(self.topic) < java_order(other.topic)
        if self.broker_name != other.broker_name:
            return java_order(self.broker_name) < java_order(other.broker_name)
        return self.queue_id < other.queue_id


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java's compareTo does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def averagely(member: str, queues: Sequence[Queue], members: Sequence[str]) -> Sequence[Queue]:
    """Adjacent queues; if they do not divide evenly, the first members get one more. Java's `AVG`."""
    if member not in members:
        return []
    index = members.index(member)
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return queues[start : start + share + (index < rest)]


def by_circle(member: str, queues: Sequence[Queue], members: Sequence[str]) -> Sequence[Queue]:
    """Every n-th queue of n members. Java's `AVG_BY_CIRCLE`."""
    return queues[members.index(member) :: len(members)] if member in members else []
