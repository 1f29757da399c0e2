"""The end of the process: producers and consumers that their program did not close are closed then.

Each runs in its own event loop: those of other threads are asked, one that does not run any more runs once more. What
is lost nevertheless is reported on stderr. `opened` and `closed`: any thread.
"""

import asyncio
import atexit
import contextlib
import itertools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("firearrow.client")

CLOSE_S = 25.0
"""How long a close may take, besides its draining."""


class Running(Protocol):
    """`drain_s`: how long `close` waits for work in flight; `report_unsent` reports what is lost."""

    @property
    def drain_s(self) -> float: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    async def close(self) -> None: ...
    def report_unsent(self) -> None: ...


class _Process:
    """What runs in the process `pid`; a forked child begins with nothing."""

    def __init__(self) -> None:
        self.pid = 0
        self.running: WeakSet[Running] = WeakSet()


_process = _Process()


def opened(service: Running) -> None:
    """Have it closed when the process ends, unless `closed` is called before."""
    if _process.pid != os.getpid():
        _process.pid, _process.running = os.getpid(), WeakSet()
        at_process_exit(close_running)
    _process.running.add(service)


def closed(service: Running) -> None:
    _process.running.discard(service)


def at_process_exit(function: Callable[[], object]) -> None:
    """Have it called when this process ends, perhaps twice. Children of multiprocessing skip `atexit`."""
    atexit.unregister(function)
    atexit.register(function)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        multiprocessing.Finalize(None, function, exitpriority=10)


def close_running() -> None:
    """Close all that runs in this process. KeyboardInterrupt: no call waits for it any more."""
    if _process.pid != os.getpid():
        return
    services = sorted(_process.running, key=lambda service: id(service.loop))
    try:
        for loop, those in itertools.groupby(services, lambda service: service.loop):
            _close_all_in(loop, list(those))
    finally:
        for service in services:
            _process.running.discard(service)
            service.report_unsent()


def _close_all_in(loop: asyncio.AbstractEventLoop, services: Sequence[Running]) -> None:
    if loop.is_closed():
        return
    within_s = CLOSE_S + max(service.drain_s for service in services)

    async def close() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                closing = (service.close() for service in services)
                for error in await asyncio.gather(*closing, return_exceptions=True):
                    if isinstance(error, Exception):
                        log.info("a client could not be closed at exit: %s", error)

    try:
        if loop.is_running():  # in another thread
            asyncio.run_coroutine_threadsafe(close(), loop).result(within_s + 1)
        else:
            loop.run_until_complete(close())
    except Exception as error:
        log.info("clients could not be closed at exit: %s", error)
