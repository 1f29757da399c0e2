"""States of producers and consumers, the base class for `async with`, and the wall clock.

An object belongs to the event loop and the process in which it was started: elsewhere its methods raise NotRunning
before anything is sent.
"""

import asyncio
import os
import sys
import time
from abc import ABC, abstractmethod
from enum import Enum
from types import TracebackType
from typing import ClassVar, NoReturn, Self

from firearrow.client.base.errors import NotRunning


class ServiceState(Enum):
    CREATE_JUST = "CREATE_JUST"
    START_FAILED = "START_FAILED"
    """Starting, or the last start failed; it may be tried again."""
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    """Closed permanently."""

    @property
    def in_words(self) -> str:
        """With Java's name, and what to do."""
        return f"{_WORDS[self][0]} ({self.value}): {_WORDS[self][1]}"


_WORDS = {
    ServiceState.CREATE_JUST: ("not started yet", "use `async with`, or call `start` first"),
    ServiceState.START_FAILED: (
        "not running, it is starting or its start failed",
        "wait for `start`, or repeat it",
    ),
    ServiceState.RUNNING: ("running", "it needs no other start"),
    ServiceState.SHUTDOWN_ALREADY: ("closed", "create another one"),
}


class Uncopied:
    """Holds connections, a thread or a process: it can neither be copied nor pickled."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can be neither pickled nor copied: create one in each process that needs it"
        )


class Startable(Uncopied, ABC):
    """Starts when `async with` is entered and closes when it ends. Event loop only."""

    forks: ClassVar[int] = 0
    """How many forks lie between this process and the one that imported this module."""
    _bound_loop: asyncio.AbstractEventLoop | None = None
    _bound_forks: int = 0

    def _bind(self) -> None:
        """Called at the start, in the loop to which the object belongs from now on."""
        self._bound_loop, self._bound_forks = asyncio.get_running_loop(), Startable.forks

    def _check_loop(self) -> None:
        """NotRunning: another event loop, no event loop, or a forked process. Nothing before the start."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        bound = self._bound_loop
        if bound is not None and (running is not bound or self._bound_forks != Startable.forks):
            raise NotRunning(self._wrong_loop())

    def _wrong_loop(self) -> str:
        name = type(self).__name__
        if self._bound_forks != Startable.forks:
            return f"this {name} was started before a fork: create another one in the child process"
        return (
            f"this {name} belongs to the event loop in which it was started: use it there, or use the {name} of "
            "firearrow.client.blocking, which works in any thread"
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which it was started."""
        assert self._bound_loop is not None
        return self._bound_loop

    @property
    def drain_s(self) -> float:
        """How long `close` waits for work in flight."""
        return 0

    def report_unsent(self) -> None:
        """Report on stderr what was not sent, and what is in flight still: for the end of the process."""

    @abstractmethod
    async def start(self) -> Self: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _forked() -> None:
    Startable.forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forked)
