"""LoopThread: the event loop thread that all blocking objects of a process share.

Any thread may call `run`, `call` and `post`; `run` refuses the loop's own thread, which would wait for
itself. The thread starts with the first object and ends with the interpreter, after open objects were closed.
A forked child does not inherit it.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from firearrow.client.base import greenlets
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.process_exit import at_process_exit, close_running
from firearrow.client.base.service_state import Startable

if sys.platform != "win32":
    from uvloop import new_event_loop
else:  # uvloop is not made for Windows
    from asyncio import new_event_loop

Result = TypeVar("Result")


class LoopThread:
    _current: ClassVar["LoopThread | None"] = None
    _making: ClassVar[threading.Lock] = threading.Lock()
    _of_parents: ClassVar[list["LoopThread"]] = []
    """Never released: a forked child must not tear down what it shares with its parent."""

    @classmethod
    def current(cls) -> "LoopThread":
        """The loop thread of this process, started if necessary."""
        with cls._making:
            if cls._current is None or cls._current._ended:
                cls._current = cls()
            return cls._current

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = new_event_loop()
        self._pid = os.getpid()
        self._ended = False
        self._closing: set[asyncio.Task[None]] = set()
        self._ident = 0
        self._thread = greenlets.start_thread(self._work, "firearrow-client")
        at_process_exit(_at_exit)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return bool(greenlets.of_system("_thread", "get_ident")() == self._ident)

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine in the loop, wait, return its result or raise its error.

        An interrupt cancels it. NotRunning.
        """
        self.check()
        if self.is_here:
            raise NotRunning(
                "a blocking method was called in the client's own event loop, which would wait for itself: "
                "use the classes of firearrow.client in coroutines"
            )
        return self._wait(work)

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in the loop and wait. In the loop's own thread it is called directly."""
        self.check()
        if self.is_here:
            return function()

        async def call_function() -> Result:
            return function()

        return self._wait(call_function)

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon; do not wait. NotRunning."""
        self.check()
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise NotRunning("the client's event loop is closed") from None

    def check(self) -> None:
        """NotRunning: the loop belongs to the parent of this fork, or the interpreter is exiting."""
        if os.getpid() != self._pid:
            raise NotRunning(
                "this object was made before a fork: create producers and consumers in the child process"
            )
        if self._ended:
            raise NotRunning("the client's event loop is closed: the interpreter is exiting")

    def close_dropped(self, inner: Startable) -> None:
        """Close an object that no caller can use any more. Does not wait: a garbage collection calls it."""
        if os.getpid() != self._pid or self._ended:
            return

        def close() -> None:
            closing = self.loop.create_task(inner.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(close)

    def _wait(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        coroutine = work()
        if greenlets.are_threads():
            try:
                return greenlets.run_in_loop(coroutine, self.loop)
            except asyncio.CancelledError:
                raise NotRunning("the client's event loop is closed") from None
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:
            coroutine.close()
            raise NotRunning("the client's event loop is closed") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise NotRunning("the client's event loop is closed") from None
        finally:
            future.cancel()  # has an effect only after an interrupt

    def _work(self) -> None:
        self._ident = greenlets.of_system("_thread", "get_ident")()
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _end(self) -> None:
        """Close what runs, then the loop."""
        if os.getpid() != self._pid or self._ended:
            return
        try:
            close_running()
        finally:
            self._ended = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            if self._thread is not None:
                self._thread.join(1)

    @classmethod
    def _forked(cls) -> None:
        """Forget the parent's thread in a forked child.

        The old lock may be held by a thread that no longer exists.
        """
        if cls._current is not None:
            cls._of_parents.append(cls._current)
        cls._current, cls._making = None, threading.Lock()


def _at_exit() -> None:
    if LoopThread._current is not None:
        LoopThread._current._end()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=LoopThread._forked)
