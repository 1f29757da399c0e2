"""Wait for something that a running broker or client will bring about."""

import asyncio
from collections.abc import Callable


async def wait_until(predicate: Callable[[], object], seconds: float = 10) -> None:
    """Until it is true; AssertionError after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not predicate():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds} s: {predicate}")
        await asyncio.sleep(0.01)
