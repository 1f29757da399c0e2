"""Queue allocation: how the members of a group split the queues of a topic, as Apache's strategies do.

Queues and members are sorted as Java sorts them. Every member computes the same split, so each queue has
exactly one owner. A member that is not listed gets no queue. Pure; any thread.
"""

from collections.abc import Sequence
from typing import TypeVar

Queue = TypeVar("Queue")


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
