import asyncio

from firearrow._native.wire.budget import Budget
from firearrow._native.wire.conn import Conn

class Lane:
    """The fast path for some requests."""

class Front(Conn):
    """A connection that offers each request to its lane first.

    `lane`: None sends all requests to `received`; `host`: the peer's address as in records.
    """

    lane: Lane | None
    host: bytes
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        frame_bytes_max: int = ...,
        high_water: int = ...,
        reads_always: bool = ...,
        budget: Budget | None = ...,
    ) -> None: ...
    def cut(self, error: Exception) -> None:
        """An answer failed: close the connection, since the client could not decode what follows."""
