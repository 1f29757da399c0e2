import asyncio

class FairQueue:
    """Connections of a loop that have whole frames left over; each iteration of the loop gives them a slice
    of time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def run(self) -> None: ...
