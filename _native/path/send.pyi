from collections.abc import Callable
from typing import Protocol

from firearrow._native.path.count import Count
from firearrow._native.path.gate import Gate
from firearrow._native.path.turn import Turn
from firearrow._native.store.store import MessageStore
from firearrow._native.wire.clocks import Clock

class Stats(Protocol):
    def counts(self, topic: str) -> tuple[Count, Count]: ...
    def put_all(self, messages: int, size: int, requests: int) -> None: ...

class Sender:
    """Plain sends without a Python object for each."""

    def __init__(
        self,
        gate: Gate,
        store: MessageStore,
        turn: Turn,
        stats: Stats,
        clock: Clock,
        next_id: Callable[[int], str],
        host: bytes,
    ) -> None:
        """`next_id(now_ms)`: a unique key for a message without one; `host`: our address as records hold it."""
    def configure(self, added: bytes, marks: dict[str, str], from_ms: int) -> None:
        """`added`: properties that every message gets; `marks`: fields that every answer begins with; `from_ms`: no
        send is taken before."""
    def count(self) -> None:
        """Tell the statistics what was put to all topics since the last time."""
