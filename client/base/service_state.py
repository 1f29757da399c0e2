"""States of producers and consumers, the base class for `async with`, and the wall clock."""

import time
from abc import ABC, abstractmethod
from enum import Enum
from types import TracebackType
from typing import Self


class ServiceState(Enum):
    CREATE_JUST = "CREATE_JUST"
    START_FAILED = "START_FAILED"
    """Starting, or the last start failed; it may be tried again."""
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    """Closed permanently."""


class Startable(ABC):
    """Starts when `async with` is entered and closes when it ends. Event loop only."""

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
