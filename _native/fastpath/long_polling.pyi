import asyncio
from collections.abc import Callable
from typing import Protocol

from firearrow._native.base.clock import Clock
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

def weight_without_body(request: RemotingCommand) -> int:
    """Drop the request's body; returns the estimated bytes that the rest takes."""

class HeldRequest:
    """A request that waits."""

    queue: Queue
    peer: Peer
    deadline_ms: int
    weight: int

class HeldCallback(HeldRequest):
    """`run_again()` runs the request a last time and replies; `has_match()` is false while no new message
    matches."""

    def __init__(
        self,
        queue: Queue,
        peer: Peer,
        deadline_ms: int,
        has_match: Callable[[], bool],
        run_again: Callable[[], object],
        weight: int = ...,
    ) -> None: ...

class PullHoldService:
    """At most `count_max` held requests with `bytes_max` in total, at first `BYTES_MAX`; `add` returns False if there
    is no capacity. An ArrivalNotifier reports arrivals."""

    count_max: int
    bytes_max: int
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, count_max: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, held: HeldRequest) -> bool: ...
    def forget(self, peer: Peer) -> None:
        """Drop the requests of a closed connection."""
    def release_all(self) -> None:
        """Answer all held requests (the broker stops)."""
    def tick(self) -> None:
        """Answer requests whose deadline has passed; the loop's timer calls it."""
