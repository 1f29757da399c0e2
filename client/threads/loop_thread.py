"""LoopThread: one event loop in a thread of its own, which all blocking objects of a process share.

Any thread may call `run`, `call` and `post`, the loop's own excepted, which would wait for itself. It begins with the
first object and ends with the interpreter, after what is still open was closed. After a fork the child has none of it.
"""

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Protocol, TypeVar

import uvloop

from firearrow.client.base.errors import NotRunning

log = logging.getLogger("firearrow.client")

Result = TypeVar("Result")
EXIT_S = 10.0
"""How long what is open may take to close when the interpreter ends."""


class Closable(Protocol):
    async def close(self) -> None: ...


class LoopThread:
    _current: ClassVar["LoopThread | None"] = None
    _making: ClassVar[threading.Lock] = threading.Lock()
    _of_parents: ClassVar[list["LoopThread"]] = []
    """Kept for good: a forked child must never tear down what it shares with its parent."""

    @classmethod
    def current(cls) -> "LoopThread":
        """That of this process; begun if need be."""
        with cls._making:
            if cls._current is None or cls._current._ended:
                cls._current = cls()
            return cls._current

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._pid = os.getpid()
        self._open: set[Closable] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="firearrow-client", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """The caller runs in the loop's thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do it in the loop, wait for it; what it raises is raised here. An interrupt cancels it. NotRunning."""
        self.check()
        if self.is_here:
            raise NotRunning(
                "a blocking verb was called in the client's own loop, which would wait for itself: coroutines must "
                "use the objects of firearrow.client"
            )
        return self._wait(work)

    def call(self, function: Callable[[], Result]) -> Result:
        """Call it in the loop, wait for it. In the loop's own thread it is simply called."""
        self.check()
        if self.is_here:
            return function()

        async def calling() -> Result:
            return function()

        return self._wait(calling)

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call it soon, and do not wait. NotRunning."""
        self.check()
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise NotRunning("the client's loop has ended") from None

    def check(self) -> None:
        """NotRunning: this process is a fork of the one that the loop lives in, or it is coming to its end."""
        if os.getpid() != self._pid:
            raise NotRunning("made before a fork: producers and consumers must be made anew in the child")
        if self._ended:
            raise NotRunning("the client's loop has ended with the interpreter")

    def opened(self, inner: Closable) -> None:
        """To be closed at the end at the latest."""
        self._open.add(inner)

    def closed(self, inner: Closable) -> None:
        self._open.discard(inner)

    def _wait(
        self, work: Callable[[], Coroutine[Any, Any, Result]], timeout_s: float | None = None
    ) -> Result:
        doing = work()
        try:
            future = asyncio.run_coroutine_threadsafe(doing, self.loop)
        except RuntimeError:
            doing.close()
            raise NotRunning("the client's loop has ended") from None
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise NotRunning("the client's loop has ended") from None
        finally:
            future.cancel()  # after an interrupt; else it is done

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _end(self) -> None:
        """Close what is open, then the loop."""
        if os.getpid() != self._pid or self._ended:
            return
        try:
            self._wait(self._close_all, EXIT_S)
        except Exception:
            log.warning("not everything could be closed at the end", exc_info=True)
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1)

    async def _close_all(self) -> None:
        closing = [inner.close() for inner in self._open]
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("closing at the end: %s", result)

    @classmethod
    def _forked(cls) -> None:
        """In the child: nothing runs here. The lock may have been held by a thread that is not there any more."""
        if cls._current is not None:
            cls._of_parents.append(cls._current)
        cls._current, cls._making = None, threading.Lock()


def _at_exit() -> None:
    if LoopThread._current is not None:
        LoopThread._current._end()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=LoopThread._forked)
