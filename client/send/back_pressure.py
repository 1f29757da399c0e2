"""BackPressure: the limit on sends, and bytes of bodies, in flight. First come, first served. Loop thread.

OnewayWrites: which one-way messages the kernel has not taken yet. They have no answer: all that can be known is that
their bytes left this process.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any

from firearrow._native.wire.fast_send import InFlightLimit
from firearrow.client.base.errors import TooManyRequests
from firearrow.client.remoting.channel import Channel

FRAMES_MAX = 16384
"""More than the buffer of a connection holds: a one-way send waits while it is full."""


class BackPressure(InFlightLimit):
    """An InFlightLimit whose capacity can be awaited.

    `waits` false: `wait_for_capacity` raises when it is full.
    """

    def __init__(self, count_max: int, bytes_max: int, waits: bool = True) -> None:
        super().__init__(count_max, bytes_max)
        self._waits = waits
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle = asyncio.Event()

    def claim(self, size: int) -> None:
        """Take capacity at once. TooManyRequests: there is none."""
        if not self.try_acquire(size):
            raise self.full()

    async def wait_for_capacity(self, size: int, timeout_s: float) -> float:
        """Take capacity, waiting if the producer may wait; the rest of `timeout_s`. TooManyRequests."""
        if self.try_acquire(size):
            return timeout_s
        if not self._waits:
            raise self.full()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self.wait(size, timeout_s)
        return timeout_s - (loop.time() - began_s)

    def hold(self, size: int, future: asyncio.Future[Any]) -> None:
        """Release the capacity when the future is done."""
        future.add_done_callback(lambda _: self.release(size))

    async def wait(self, size: int, timeout_s: float) -> None:
        """Take capacity, waiting if necessary. TooManyRequests: not within `timeout_s`."""
        if self.try_acquire(size):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (waiter, size)
        self._waiting.append(entry)
        self.crowded = True
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self.release(size)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(entry)
                self._wake_waiters()
            if isinstance(error, TimeoutError):
                raise self.full() from None
            raise

    def freed(self) -> None:
        self._wake_waiters()
        if not self.count:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self.count:
            self._idle.clear()
            await self._idle.wait()

    def full(self) -> TooManyRequests:
        return TooManyRequests(
            f"{self.count} messages of {self.bytes} bytes are in flight, "
            f"the limit is {self.count_max} messages and {self.bytes_max} bytes"
        )

    def _wake_waiters(self) -> None:
        while self._waiting and self.fits(self._waiting[0][1]):
            waiter, size = self._waiting.popleft()
            if waiter.done():
                continue
            self.count += 1
            self.bytes += size
            waiter.set_result(None)
        self.crowded = bool(self._waiting)


class OnewayWrites:
    def __init__(self) -> None:
        self._sizes: dict[Channel, deque[int]] = {}

    def written(self, channel: Channel, size: int) -> None:
        sizes = self._sizes.get(channel)
        if sizes is None:
            self._forget_closed()
            sizes = self._sizes[channel] = deque(maxlen=FRAMES_MAX)
        sizes.append(size)

    def unsent(self) -> int:
        """How many messages are in buffers of connections, in part or whole."""
        self._forget_closed()
        return sum(_last(sizes, channel.unsent_bytes) for channel, sizes in self._sizes.items())

    def _forget_closed(self) -> None:
        self._sizes = {channel: sizes for channel, sizes in self._sizes.items() if not channel.closed}


def _last(sizes: deque[int], length: int) -> int:
    """How many of the last sizes make up this length."""
    count = 0
    for size in reversed(sizes):
        if length <= 0:
            break
        length -= size
        count += 1
    return count
