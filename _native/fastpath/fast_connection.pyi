import asyncio

from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.connection import Connection

class FastHandler:
    """The fast path for some requests."""

class RequestCounts:
    """Requests of one kind of client on the fast path: sends whose headers matched a template, other sends, pulls."""

    language: int
    version: int
    templated: int
    parsed: int
    pulled: int
    def left(self) -> dict[str, tuple[int, int]]:
        """Reason -> sends and pulls that left the fast path for it; without zeros."""

class FastConnection(Connection):
    """A connection that offers each request to its FastHandler first.

    `fast_handler`: None sends all requests to `received`; `host`: the peer's address as in records.
    """

    fast_handler: FastHandler | None
    language: int
    """Of its last request, as its version; -1: it sent none."""
    version: int
    host: bytes
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        frame_bytes_max: int = ...,
        high_water: int = ...,
        reads_always: bool = ...,
        budget: MemoryBudget | None = ...,
    ) -> None: ...
    def throttle(self, delay_s: float) -> None:
        """Send no reply and read no request for so long: its client is over a quota."""
    def abort_with(self, error: Exception) -> None:
        """A reply failed: close the connection, since the client could not decode what follows."""
