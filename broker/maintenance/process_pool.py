"""Runs the audit in several processes, because its native loops hold the GIL, and shows a progress bar.

A small store is checked in this process: to start another one takes longer than to read 200 MB. After Ctrl-C
the other processes end with their current task.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Self, TypeVar

from firearrow._native.base.progress_bar import progress_bar

SERIAL_BYTES = 256 << 20
TASK_BYTES = 256 << 20
TASKS_MAX = 4096
T = TypeVar("T")
R = TypeVar("R")


class ProcessExecutor:
    """The executor of an audit (`_native.store_checks`). `log_bytes`: how much there is to read. Context manager."""

    def __init__(self, log_bytes: int, *, jobs: int = 0, quiet: bool = True) -> None:
        """`jobs` 0: one per core."""
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.width = min(TASKS_MAX, max(1, -(-log_bytes // TASK_BYTES)))
        self._quiet = quiet
        self._in_this_process = self.jobs == 1 or log_bytes < SERIAL_BYTES
        self._pool: ProcessPoolExecutor | None = None

    def __call__(
        self, step: str, work: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int]
    ) -> list[R]:
        seen: list[R] = []
        with progress_bar(step, sum(weights), quiet=self._quiet) as advance:
            for each, weight in zip(self._done(work, tasks), weights, strict=True):
                seen.append(each)
                advance(weight)
        return seen

    def _done(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
        if self._in_this_process or len(tasks) < 2:
            return map(work, tasks)
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.jobs, get_context("spawn"))
        with interrupts_ignored():
            return self._pool.map(work, tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes that are started within this context ignore Ctrl-C from their first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
