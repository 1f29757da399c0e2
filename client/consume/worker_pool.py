"""Crew: jobs done by at most so many tasks at a time, first come first served. Knows nothing of messages.

Event loop only. Workers are tasks made when there is work and gone when there is none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Generic, TypeVar

from firearrow.client.consume.consume_results import Cancellable, Later

log = logging.getLogger("firearrow.client")
Job = TypeVar("Job")
CANCEL_S = 1.0
"""How long a cancelled handler may take to go."""
_own_job: ContextVar[object] = ContextVar("turn", default=None)
"""Names the job by which something came about, so that a stop does not wait for the job that asked for it."""


class WorkerPool(Generic[Job]):
    """`work(job)` does one job; what it raises is logged."""

    def __init__(self, size: int, work: Callable[[Job], Awaitable[None]], later: Later | None = None) -> None:
        self._size = size
        self._work = work
        self._later = later
        self._jobs: deque[Job] = deque()
        self._tasks: dict[asyncio.Task[None], object] = {}
        self._spawned: set[asyncio.Task[None]] = set()
        self._timers: set[Cancellable] = set()
        self.stopped = False

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Once stopped, nothing is taken any more."""
        if self.stopped:
            return
        self._jobs.append(job)
        if len(self._tasks) < self._size:
            self._tasks[asyncio.get_running_loop().create_task(self._worker())] = None

    def add_later(self, after_s: float, job: Job) -> None:
        self.call_later(after_s, lambda: self.add(job))

    def call_later(self, after_s: float, callback: Callable[[], None]) -> None:
        """Not at all if the crew is stopped before."""
        if self.stopped:
            return

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        later: Later = self._later or asyncio.get_running_loop().call_later
        timer = later(after_s, fire)
        self._timers.add(timer)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """A task that takes nobody's place; cancelled at the stop."""
        task = asyncio.get_running_loop().create_task(self._logged(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def stop(self, within_s: float) -> None:
        """Jobs that run may finish for so long, then they are cancelled; the others are forgotten at once.

        A job that stops its own crew is not waited for.
        """
        self.stopped = True
        self._jobs.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for aside in self._spawned:
            aside.cancel()
        own = _own_job.get()
        running = {task for task, own_job in self._tasks.items() if own is None or own_job is not own}
        if running:
            running = (await asyncio.wait(running, timeout=within_s))[1]
        if running:
            log.warning("%d handlers still run after %.1f s: their results are lost", len(running), within_s)
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_S)

    async def _worker(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._jobs:
                own_job = self._tasks[task] = object()
                _own_job.set(own_job)
                await self._logged(self._work(self._jobs.popleft()))
                # A handler that never waits would otherwise keep the loop until nothing is left.
                await asyncio.sleep(0)
        finally:
            del self._tasks[task]

    async def _logged(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            log.exception("consuming failed")
