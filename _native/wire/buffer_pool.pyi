import asyncio
from collections.abc import Callable

KEPT_BYTES: int

class BufferPool:
    """A pool of buffers for large frames, at most KEPT_BYTES. One thread."""

    bytes: int
    def acquire(self, length: int) -> bytearray | None:
        """The smallest buffer of at least `length` bytes, with its old content; None: there is none."""
    def release(self, buffer: bytearray) -> None:
        """Return a buffer that has no other users. Smaller buffers are dropped if the pool is full."""

class MemoryBudget:
    """Bytes held for peers that stopped in the middle. Above `bytes_max` the loop calls `exceeded()`.

    Loop thread.
    """

    held: int
    bytes_max: int
    def __init__(
        self, loop: asyncio.AbstractEventLoop, bytes_max: int, exceeded: Callable[[], object]
    ) -> None: ...
    def return_memory(self) -> None:
        """Return memory freed since the peak to the system; call it now and then."""
