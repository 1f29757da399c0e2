"""Limits of connections and their buffers, and which connections to close at a limit.

Only selects connections; the server closes them. Any thread.
"""

import resource
from collections.abc import Iterable
from typing import Protocol, TypeVar

DESCRIPTORS_MAX = 1 << 20
RESERVED_SHARE, RESERVED_MAX = 4, 4096
"""A quarter of the descriptors, at most 4096, is reserved for the store, which can always open a file."""
UNSENT_BYTES_MIN, UNSENT_BYTES_MAX = 32 << 10, 1 << 20
"""Unsent bytes in the kernel for a peer that does not read: the least and the most. Without a limit, a few thousand
such peers use up the kernel's TCP memory, and all connections stall."""
IDLE_NEWCOMER_S = 5.0
"""At the limit of connections, one that sent no whole frame for this time is closed."""


class ConnectionUsage(Protocol):
    @property
    def held(self) -> int:
        """Buffered bytes: of an incomplete frame, and of answers that the peer does not read."""

    @property
    def received_frames(self) -> int: ...
    @property
    def last_seen(self) -> float: ...


C = TypeVar("C", bound=ConnectionUsage)


def connections_max() -> int:
    """The process's descriptors without the reserve. Raises the soft limit to the hard one first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    total = DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    return total - min(total // RESERVED_SHARE, RESERVED_MAX)


def unsent_bytes(connections: int, total: int) -> int:
    """The limit of unsent bytes for a new connection when there are `connections` others (TCP_NOTSENT_LOWAT). `total`:
    for all together."""
    return min(max(total // (connections + 1), UNSENT_BYTES_MIN), UNSENT_BYTES_MAX)


def largest_holders(connections: Iterable[C], excess: int) -> list[C]:
    """The connections that hold most, until they sum up to `excess` bytes."""
    chosen: list[C] = []
    for each in sorted(connections, key=lambda connection: connection.held, reverse=True):
        if excess <= 0 or not each.held:
            break
        chosen.append(each)
        excess -= each.held
    return chosen


def idle_newcomers(connections: Iterable[C], connected_before: float) -> list[C]:
    """Connections that never sent a whole frame, and nothing since `connected_before`."""
    return [each for each in connections if not each.received_frames and each.last_seen < connected_before]
