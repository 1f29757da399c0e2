"""Crowding: how many connections there may be, and who goes when they are too many or hold too much.

Chooses, closes nobody. Any thread.
"""

import resource
from collections.abc import Iterable
from typing import Protocol, TypeVar

DESCRIPTORS_MAX = 1 << 20
RESERVED_SHARE, RESERVED_MAX = 4, 4096
"""A quarter of the descriptors, at most so many, stays for the store: no crowd keeps it from opening its next file."""
HELD_BYTES_MAX = 1 << 30
UNSENT_BYTES, UNSENT_BYTES_MIN, UNSENT_BYTES_MAX = 128 << 20, 32 << 10, 1 << 20
"""Bytes that wait in the kernel for peers that do not read: shared by those who are there, and of one at least and at
most. Without it a few thousand of them take all the memory that the kernel has for TCP, and everybody's connections
stall.
"""
IDLE_NEWCOMER_S = 5.0
"""One that said nothing whole for so long gives way to others when no more fit."""


class ConnectionUsage(Protocol):
    @property
    def held(self) -> int:
        """Bytes kept for it: of a frame that is not whole, of answers that it does not read."""

    @property
    def received_frames(self) -> int: ...
    @property
    def last_seen(self) -> float: ...


One = TypeVar("One", bound=ConnectionUsage)


def connections_max() -> int:
    """As many as the process has descriptors for; asks the system for all that it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    most = DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    return most - min(most // RESERVED_SHARE, RESERVED_MAX)


def unsent_bytes(connections: int) -> int:
    """What may wait in the kernel for one that comes to so many others (TCP_NOTSENT_LOWAT)."""
    return min(max(UNSENT_BYTES // (connections + 1), UNSENT_BYTES_MIN), UNSENT_BYTES_MAX)


def largest_holders(connections: Iterable[One], excess: int) -> list[One]:
    """Who holds most, until `excess` bytes are found."""
    chosen: list[One] = []
    for each in sorted(connections, key=lambda one: one.held, reverse=True):
        if excess <= 0 or not each.held:
            break
        chosen.append(each)
        excess -= each.held
    return chosen


def idle_newcomers(connections: Iterable[One], connected_before: float) -> list[One]:
    """Who never said anything whole, and nothing at all since then."""
    return [each for each in connections if not each.received_frames and each.last_seen < connected_before]
