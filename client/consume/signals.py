"""SIGTERM and SIGINT as calls to consumers, so that each can stop cleanly.

The first signal restores the previous handler of SIGINT, so that a second Ctrl-C ends the process as usual. SIGTERM
changes nothing any more until no consumer waits, since supervisors repeat it; then its handler is also restored. Main
thread only; in other threads nothing happens.
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
            self._restore(*SIGNALS)

    def _catch(self, number: signal.Signals) -> None:
        if sys.platform != "win32":
            self._loop.add_signal_handler(number, self._signalled)
        else:  # its loops have no signal handlers
            signal.signal(number, lambda *_: self._loop.call_soon_threadsafe(self._signalled))

    def _signalled(self) -> None:
        if signal.SIGINT not in self._before:
            return  # a repeated SIGTERM
        self._restore(signal.SIGINT)
        for called in list(self._waiting):
            called()

    def _restore(self, *numbers: signal.Signals) -> None:
        for number in self._before.keys() & numbers:
            handler = self._before.pop(number)
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

    def restore(*numbers: signal.Signals) -> None:
        for number in numbers:
            if before[number] is not None:  # None: a handler that Python did not install
                signal.signal(number, before[number])

    def stopped(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        restore(signal.SIGINT)
        stop()

    for number in SIGNALS:
        signal.signal(number, stopped)
    try:
        yield
    finally:
        restore(*SIGNALS)
