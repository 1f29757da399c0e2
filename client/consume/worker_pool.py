"""WorkerPool: runs jobs in at most N tasks at a time, first come first served. It knows nothing of messages.

Worker tasks start when there is work and end when there is none. Event loop only.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Generic, TypeVar

from firearrow.client.consume.consume_results import Cancellable, Later

log = logging.getLogger("firearrow.client")
Job = TypeVar("Job")
CANCEL_S = 1.0
"""How long a cancelled job may take to end."""
SLICE_S = 0.0005
"""How long jobs that never wait keep the loop before other tasks run."""
_own_job: ContextVar[object] = ContextVar("own_job", default=None)
"""The job that runs in this context, so that `stop` does not wait for the job that called it."""


class WorkerPool(Generic[Job]):
    """`work(job)` does one job; its errors are logged."""

    def __init__(self, size: int, work: Callable[[Job], Awaitable[None]], later: Later | None = None) -> None:
        self._size = size
        self._work = work
        self._later = later
        self._jobs: deque[Job] = deque()
        self._tasks: dict[asyncio.Task[None], object] = {}
        self._spawned: set[asyncio.Task[None]] = set()
        self._timers: set[Cancellable] = set()
        self._slice_ends_s: float | None = None
        self.stopped = False

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Queue a job; ignored after the stop."""
        if self.stopped:
            return
        self._jobs.append(job)
        if len(self._tasks) < self._size:
            self._tasks[asyncio.get_running_loop().create_task(self._worker())] = None

    def add_later(self, after_s: float, job: Job) -> None:
        self.call_later(after_s, lambda: self.add(job))

    def call_later(self, after_s: float, callback: Callable[[], None]) -> None:
        """Call it later, unless the pool stops before."""
        if self.stopped:
            return

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        later: Later = self._later or asyncio.get_running_loop().call_later
        timer = later(after_s, fire)
        self._timers.add(timer)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run a task that does not count as a worker; the stop cancels it."""
        task = asyncio.get_running_loop().create_task(self._logged(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def stop(self, within_s: float) -> None:
        """Running jobs may finish in `within_s` and are then cancelled; waiting jobs are dropped at once.

        A job that stops its own pool is not awaited.
        """
        self.stopped = True
        self._jobs.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for spawned in self._spawned:
            spawned.cancel()
        own = _own_job.get()
        running = {task for task, own_job in self._tasks.items() if own is None or own_job is not own}
        if running:
            running = (await asyncio.wait(running, timeout=within_s))[1]
        if running:
            log.info(
                "%d handlers still run after %.1f s: they are cancelled and their results are lost",
                len(running),
                within_s,
            )
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
                try:
                    await self._work(self._jobs.popleft())
                except Exception:
                    log.exception("consuming failed")
                if self._slice_is_over():
                    await asyncio.sleep(0)
        finally:
            del self._tasks[task]

    def _slice_is_over(self) -> bool:
        """Whether the workers must let other tasks run: one slice for all of them in each turn of the loop."""
        now_s = time.monotonic()
        if self._slice_ends_s is None:
            self._slice_ends_s = now_s + SLICE_S
            asyncio.get_running_loop().call_soon(self._next_turn)
            return False
        return now_s > self._slice_ends_s

    def _next_turn(self) -> None:
        self._slice_ends_s = None

    async def _logged(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            log.exception("consuming failed")
