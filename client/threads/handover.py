"""Handover: messages of any thread reach a producer's loop, many by one wake-up; their results come as thread futures.

No more are on the way than there is room for: who brings one more waits, but never in the loop itself.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from firearrow.client.base.errors import NotRunning, TooManyRequests
from firearrow.client.base.message import SendResult
from firearrow.client.threads.loop_thread import LoopThread

Submit = Callable[[], asyncio.Future[SendResult]]


class InFlightOptions(Protocol):
    """How much may be on the way, and how long to wait for room: ProducerOptions."""

    @property
    def in_flight_max(self) -> int: ...
    @property
    def send_timeout_s(self) -> float: ...
    @property
    def wait_when_full(self) -> bool: ...


class ThreadBridge:
    def __init__(self, thread: LoopThread, options: InFlightOptions) -> None:
        self._thread = thread
        self._options = options
        self._room = threading.BoundedSemaphore(options.in_flight_max)
        self._waiting: deque[tuple[Future[SendResult], Submit]] = deque()
        self._woken = False

    def submit(self, submit: Submit) -> Future[SendResult]:
        """Have the loop call it. TooManyRequests: no room in time. What `submit` raises, the future raises."""
        self._thread.check()
        wait = self._options.wait_when_full and not self._thread.is_here
        if not self._room.acquire(blocking=wait, timeout=self._options.send_timeout_s if wait else None):
            raise TooManyRequests(f"{self._options.in_flight_max} messages are on the way already")
        future: Future[SendResult] = Future()
        self._waiting.append((future, submit))
        if not self._woken:
            self._woken = True
            self._thread.post(self._collect)
        return future

    def _collect(self) -> None:
        self._woken = False  # before the first is taken: whoever comes later wakes again
        while self._waiting:
            future, submit = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                self._room.release()
                continue
            try:
                sending = submit()
            except Exception as error:
                self._room.release()
                future.set_exception(error)
                continue
            sending.add_done_callback(partial(self._done, future))

    def _done(self, future: Future[SendResult], sending: asyncio.Future[SendResult]) -> None:
        self._room.release()
        if sending.cancelled():
            future.set_exception(NotRunning("the producer was closed"))
        elif (error := sending.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(sending.result())
