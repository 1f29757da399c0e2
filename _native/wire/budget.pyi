import asyncio
from collections.abc import Callable

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
