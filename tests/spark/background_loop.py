"""BackgroundLoop: an event loop in its own thread, which runs scripted brokers and proxies for tests that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")
WAIT_S = 20
TURNS = 10


class BackgroundLoop:
    """`with BackgroundLoop() as loop: cluster = loop.enter(Scripted("a"))`. It exits what was entered."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._accept())
        self.run(self._stack.aclose())
        self.run(self._over())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        return self.run(self._stack.enter_async_context(manager))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def call(self, function: Callable[[], T]) -> T:
        async def calling() -> T:
            return function()

        return self.run(calling())

    async def _accept(self) -> None:
        """Let pending connections be accepted: a server that is closed while it accepts one leaks it."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _over(self) -> None:
        """Wait until connections that were aborted, or were just being accepted, are closed."""
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            _, lasting = await asyncio.wait(others, timeout=1)
            for task in lasting:
                task.cancel()
            await asyncio.gather(*lasting, return_exceptions=True)
