"""SIGTERM and SIGINT as calls to consumers, so that each can stop cleanly.

The previous signal handlers are restored with the first signal, so that a second one ends the process as
usual, and when no consumer waits any more. Main thread only; in other threads nothing happens.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SignalHandlers:
    """The signal handlers of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Callable[[], None]] = []
        self._before: dict[signal.Signals, Any] = {}

    def add(self, called: Callable[[], None]) -> None:
        if not self._waiting:
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            for number in SIGNALS:
                self._catch(number)
        self._waiting.append(called)

    def remove(self, called: Callable[[], None]) -> None:
        if called in self._waiting:
            self._waiting.remove(called)
        if not self._waiting:
            self._restore()

    def _catch(self, number: signal.Signals) -> None:
        if sys.platform != "win32":
            self._loop.add_signal_handler(number, self._signalled)
        else:  # its loops have no signal handlers
            signal.signal(number, lambda *_: self._loop.call_soon_threadsafe(self._signalled))

    def _signalled(self) -> None:
        self._restore()
        for called in list(self._waiting):
            called()

    def _restore(self) -> None:
        before, self._before = self._before, {}
        for number, handler in before.items():
            if sys.platform != "win32":
                self._loop.remove_signal_handler(number)
            if handler is not None:  # None: a handler that Python did not install
                signal.signal(number, handler)


_handlers_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, SignalHandlers] = WeakKeyDictionary()


@contextmanager
def on_stop_signals(called: Callable[[], None]) -> Iterator[None]:
    """Within the block, the first SIGTERM or SIGINT calls `called` in the running loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = _handlers_of_loops.setdefault(loop, SignalHandlers(loop))
    handlers.add(called)
    try:
        yield
    finally:
        handlers.remove(called)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """The same without a loop: the first signal calls `stop` in the main thread, even while it waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:  # None: a handler that Python did not install
                signal.signal(number, handler)

    def stopped(number: int, frame: object) -> None:
        restore()
        stop()

    for number in SIGNALS:
        signal.signal(number, stopped)
    try:
        yield
    finally:
        restore()
