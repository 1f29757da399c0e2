import asyncio

class Leftover:
    """Connections of a loop that have whole frames left over: a slice of time for them in each turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def run(self) -> None: ...
