"""ThreadBridge: messages from any thread to a producer's loop, many with one wake-up.

Results are futures of concurrent.futures. The number of messages in flight is limited: a caller that exceeds
it waits, unless it runs in the loop itself.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from firearrow.client.base import greenlets
from firearrow.client.base.errors import NotRunning, TooManyRequests
from firearrow.client.base.message import SendResult
from firearrow.client.base.unsent import UnreadFuture, Unsent
from firearrow.client.threads.loop_thread import LoopThread

Submit = Callable[[], asyncio.Future[SendResult]]


class InFlightOptions(Protocol):
    """How many messages may be in flight, and how long to wait for capacity: see ProducerOptions."""

    @property
    def in_flight_max(self) -> int: ...
    @property
    def send_timeout_s(self) -> float: ...
    @property
    def wait_when_full(self) -> bool: ...


class GreenletSemaphore:
    """For greenlets that acquire and a loop that releases, in another thread: gevent's may block the loop."""

    def __init__(self, thread: LoopThread, count: int) -> None:
        self._thread = thread
        self._free = deque([None] * count)
        self._released = asyncio.Event()

    def acquire(self, blocking: bool, timeout: float | None) -> bool:
        ends_s = time.monotonic() + (timeout or 0)
        while True:
            with contextlib.suppress(IndexError):
                self._free.pop()
                return True
            left_s = ends_s - time.monotonic()
            if not blocking or left_s <= 0:
                return False
            self._thread.run(partial(self._wait, left_s))

    def release(self) -> None:
        self._free.append(None)
        self._released.set()

    async def _wait(self, within_s: float) -> None:
        self._released.clear()
        if not self._free:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._released.wait()


class ThreadBridge:
    """Failures that no caller reads are counted in `unsent`."""

    def __init__(self, thread: LoopThread, options: InFlightOptions, unsent: Unsent) -> None:
        self._thread = thread
        self._options = options
        self._unsent = unsent
        unsent.by_future = True
        self._greenlets = greenlets.are_threads()
        self._capacity = (
            GreenletSemaphore(thread, options.in_flight_max)
            if self._greenlets
            else threading.BoundedSemaphore(options.in_flight_max)
        )
        self._waiting: deque[tuple[UnreadFuture[SendResult], Submit]] = deque()
        self._woken = False

    def submit(self, submit: Submit) -> Future[SendResult]:
        """Have the loop call `submit`, whose errors the future carries.

        TooManyRequests: no capacity in time.
        """
        self._thread.check()
        wait = self._options.wait_when_full and not self._thread.is_here
        if not self._capacity.acquire(blocking=wait, timeout=self._options.send_timeout_s if wait else None):
            raise TooManyRequests(
                f"{self._options.in_flight_max} messages are in flight, no more are allowed"
            )
        future: UnreadFuture[SendResult] = UnreadFuture(self._unsent, of_greenlets=self._greenlets)
        self._waiting.append((future, submit))
        if not self._woken:
            self._woken = True
            self._thread.post(self._collect)
        return future

    def _collect(self) -> None:
        self._woken = False  # first: a message that is submitted from here on wakes the loop again
        while self._waiting:
            future, submit = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                self._capacity.release()
                continue
            try:
                sending = submit()
            except Exception as error:
                self._capacity.release()
                future.fail(error)
                continue
            sending.add_done_callback(partial(self._done, future))

    def _done(self, future: UnreadFuture[SendResult], sending: asyncio.Future[SendResult]) -> None:
        self._capacity.release()
        if sending.cancelled():
            future.fail(NotRunning("the producer was closed"))
        elif (error := sending.exception()) is not None:
            future.fail(error)
        else:
            future.set_result(sending.result())
