import asyncio

from firearrow._native.wire.budget import Budget
from firearrow._native.wire.conn import Conn

class Lane:
    """A shorter way for some requests."""

class Front(Conn):
    """A connection that offers each request to its lane first.

    `lane`: None, and all requests go to `received`; `host`: the peer's address as records hold it.
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
        """An answer could not be made or sent: the connection ends, as nothing that followed would be understood."""
