"""Listeners: make a handler awaitable; a function runs in a thread, a coroutine function in the loop.

They do not interpret a handler's answer. Event loop only; only the handlers run in the threads.
"""

import asyncio
import contextvars
import inspect
import queue
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base import greenlets
from firearrow.client.base.errors import ConfigError, NotRunning
from firearrow.client.base.hooks import is_coroutine_function

Handler = Callable[[list[ReceivedMessage]], Any]
NAME_CHARS = 100


class Listener:
    """One handler. If a plain function returns an awaitable, it is awaited as well."""

    __slots__ = ("_threads", "handler")

    def __init__(self, handler: Handler, threads: "HandlerThreads") -> None:
        self.handler = handler
        self._threads = None if is_coroutine_function(handler) else threads

    def __call__(self, messages: list[ReceivedMessage]) -> Awaitable[object]:
        if self._threads is None:
            running: Awaitable[object] = self.handler(messages)
            return running
        return self._run_in_thread(self._threads, messages)

    async def _run_in_thread(self, threads: "HandlerThreads", messages: list[ReceivedMessage]) -> object:
        answer = await threads.run(self.handler, messages)
        return await answer if inspect.isawaitable(answer) else answer


class Listeners:
    """`handler_of(topic)` is called each time, as subscriptions may change; None: no handler."""

    def __init__(self, handler_of: Callable[[str], Handler | None], threads: "HandlerThreads") -> None:
        self._handler_of = handler_of
        self._threads = threads
        self._known: dict[str, Listener] = {}

    def of(self, topic: str) -> Listener | None:
        handler = self._handler_of(topic)
        if handler is None:
            self._known.pop(topic, None)
            return None
        known = self._known.get(topic)
        if known is None or known.handler is not handler:
            known = self._known[topic] = Listener(handler, self._threads)
        return known


class _Call:
    __slots__ = ("answer", "argument", "context", "error", "future", "handler")

    def __init__(
        self, handler: Handler, argument: list[ReceivedMessage], future: asyncio.Future[object]
    ) -> None:
        self.handler = handler
        self.argument = argument
        self.future = future
        self.context = contextvars.copy_context()
        self.answer: object = None
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.answer = self.context.run(self.handler, self.argument)
        except BaseException as error:
            self.error = error


class HandlerThreads:
    """At most `count` threads, started on demand.

    They are daemons: a handler that never ends must not keep the process alive. One wake-up of the loop
    delivers the results of many calls.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name[:NAME_CHARS]
        self._count = count
        self._started = 0
        self._calls: queue.SimpleQueue[_Call | None] = greenlets.of_system("queue", "SimpleQueue")()
        self._done: deque[_Call] = deque()
        self._woken = False
        self._running = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, handler: Handler, argument: list[ReceivedMessage]) -> asyncio.Future[object]:
        """Run in a thread with the caller's context variables. The future raises what the handler raises."""
        if self._count == 0:
            raise NotRunning("the consumer is closed")
        loop = self._loop = asyncio.get_running_loop()
        call = _Call(handler, argument, loop.create_future())
        if self._running >= self._started and self._started < self._count:
            self._start_thread()
        self._running += 1
        self._calls.put(call)
        return call.future

    def close(self) -> None:
        """Threads end when their handlers do; `close` does not wait for them."""
        for _ in range(self._started):
            self._calls.put(None)
        self._started = self._count = 0

    def _start_thread(self) -> None:
        """RuntimeError: there is no thread, and none can be started. If there are some, they take the calls."""
        try:
            greenlets.start_thread(self._work, f"{self._name}_{self._started}")
        except RuntimeError:  # too many in the system, or Python 3.12 and later is about to end
            if not self._started:
                raise
        else:
            self._started += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._done.append(call)
            del call
            self._wake()

    def _wake(self) -> None:
        if self._woken or self._loop is None:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop is closed: no caller waits for results
            self._done.clear()

    def _collect(self) -> None:
        self._woken = False  # before the first result is taken: a later one wakes the loop again
        while self._done:
            call = self._done.popleft()
            self._running -= 1
            if call.future.done():
                continue
            if call.error is None:
                call.future.set_result(call.answer)
            else:
                call.future.set_exception(_as_error(call.error))


class HandlerExit(RuntimeError):
    """A handler raised an exception that no future can carry, such as StopIteration; it is the cause."""


def _as_error(error: BaseException) -> BaseException:
    if isinstance(error, StopIteration | asyncio.CancelledError | GeneratorExit):
        wrapped = HandlerExit(f"a handler raised {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    return error


def check_handler(topic: str, handler: object) -> None:
    """ConfigError: it cannot be called with a list of messages, and would fail for each of them."""
    if not callable(handler):
        raise ConfigError(f"{topic}: a handler must be callable, not {type(handler).__name__}")
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except (ValueError, TypeError):  # not known, for example of some functions in C
        return
    try:
        signature.bind([])
    except TypeError as error:
        raise ConfigError(
            f"{topic}: a handler is called with one argument, the list of messages, but "
            f"{getattr(handler, '__qualname__', handler)}{signature} cannot be: {error}"
        ) from None
