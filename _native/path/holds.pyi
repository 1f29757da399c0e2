import asyncio
from collections.abc import Callable
from typing import Protocol

from firearrow._native.wire.clocks import Clock
from firearrow._native.wire.command import RemotingCommand

Queue = tuple[str, int]

BYTES_MAX: int
"""Limit of the memory of all held requests, estimated."""
REQUEST_BYTES: int
"""Estimated memory of one request without long strings."""

class Peer(Protocol):
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...

def lightened(request: RemotingCommand) -> int:
    """Drop the request's body; returns the estimated bytes that it takes while it waits."""

class Held:
    """A request that waits."""

    queue: Queue
    peer: Peer
    deadline_ms: int
    weight: int

class HeldCall(Held):
    """`again()` runs the request a last time and answers it; `wants()` is false while no new message matches."""

    def __init__(
        self,
        queue: Queue,
        peer: Peer,
        deadline_ms: int,
        wants: Callable[[], bool],
        again: Callable[[], object],
        weight: int = ...,
    ) -> None: ...

class Holds:
    """At most `most` held requests of together `BYTES_MAX`; `add` returns False if there is no capacity. A
    News (path/news) reports arrivals."""

    most: int
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, most: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, held: Held) -> bool: ...
    def forget(self, peer: Peer) -> None:
        """The connection is closed: drop its requests."""
    def release_all(self) -> None:
        """Answer all held requests (the broker stops)."""
    def tick(self) -> None:
        """Answer requests whose deadline has passed; the loop's timer calls it."""
