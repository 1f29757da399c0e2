import asyncio
from collections.abc import Callable

class Budget:
    """Bytes that connections hold for peers that stopped in the middle. Past `bytes_max`: `exceeded()`, next turn.

    Loop thread.
    """

    held: int
    bytes_max: int
    def __init__(
        self, loop: asyncio.AbstractEventLoop, bytes_max: int, exceeded: Callable[[], object]
    ) -> None: ...
    def give_back(self) -> None:
        """To the system, what was freed since they held most; now and then."""
