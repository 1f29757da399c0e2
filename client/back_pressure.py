"""BackPressure: how many sends, and bytes of bodies, are on the way at a time. First come, first served.

Loop thread.
"""

import asyncio
import contextlib
from collections import deque

from firearrow.client.errors import TooManyRequests


class BackPressure:
    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle = asyncio.Event()
        self.count = 0
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Room for one of `size` bytes at once; false: full, or others wait. One alone always has room."""
        if self._waiting or not self._fits(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def wait(self, size: int, timeout_s: float) -> None:
        """Take room, waiting for it if need be. TooManyRequests: not within `timeout_s`."""
        if self.take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(entry)
                self._serve()
            if isinstance(error, TimeoutError):
                raise self.full() from None
            raise

    def give_back(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._serve()
        if not self.count:
            self._idle.set()

    async def idle(self) -> None:
        """Until nothing is on the way."""
        while self.count:
            self._idle.clear()
            await self._idle.wait()

    def full(self) -> TooManyRequests:
        return TooManyRequests(
            f"{self.count} messages of {self.bytes} bytes are on the way, at most {self._count_max} and "
            f"{self._bytes_max} bytes may be"
        )

    def _fits(self, size: int) -> bool:
        return self.count == 0 or (self.count < self._count_max and self.bytes + size <= self._bytes_max)

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size = self._waiting.popleft()
            if turn.done():
                continue
            self.count += 1
            self.bytes += size
            turn.set_result(None)
