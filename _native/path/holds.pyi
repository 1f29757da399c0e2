import asyncio
from collections.abc import Callable
from typing import Protocol

from firearrow._native.wire.clocks import Clock
from firearrow._native.wire.command import RemotingCommand

Queue = tuple[str, int]

BYTES_MAX: int
"""About what held requests may take in memory, however many they are."""
REQUEST_BYTES: int
"""One without long texts."""

class Peer(Protocol):
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...

def lightened(request: RemotingCommand) -> int:
    """About how many bytes the request takes while it waits, which it does without its body."""

class Held:
    """A request that waits."""

    queue: Queue
    peer: Peer
    deadline_ms: int
    weight: int

class HeldCall(Held):
    """`again()` runs the request a last time and answers it; `wants()` is false while nothing new would match."""

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
    """At most `most` held requests, of `BYTES_MAX`; `add` says False when there is no room. A News (path/news) tells
    it what is new."""

    most: int
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, most: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, held: Held) -> bool: ...
    def forget(self, peer: Peer) -> None:
        """The connection is gone: what it asked for is dropped."""
    def release_all(self) -> None:
        """Answer all that is held now (the broker stops)."""
    def tick(self) -> None:
        """Answer those whose deadline has come; the loop's timer calls it."""
