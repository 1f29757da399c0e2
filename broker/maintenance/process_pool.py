"""Runs the audit in several processes, because its native loops hold the GIL, and shows a progress bar on
stderr.

A small store is checked in this process: to start another one takes longer than to read 200 MB. After Ctrl-C
the other processes end with their current task. The bar is shown only at a terminal.
"""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Self, TypeVar

Advance = Callable[[int], None]
"""Called with the number of bytes, or tasks, that were done since the last call."""
BAR_FROM, BAR_CHARS, PAINT_S = 1, 30, 0.1
ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress_bar(what: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """Show a bar for `total` bytes or tasks until the context ends."""
    if quiet or total < BAR_FROM or not sys.stderr.isatty():
        yield lambda _: None
        return
    bar = ProgressBar(what, total, time.monotonic)
    try:
        yield bar.advance
    finally:
        print(ERASE_LINE, end="", file=sys.stderr, flush=True)


class ProgressBar:
    """One line of a terminal, drawn again at most every PAINT_S."""

    def __init__(self, what: str, total: int, clock: Callable[[], float]) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._done, self._start = 0, clock()
        self._painted = -math.inf
        self.advance(0)

    def advance(self, count: int) -> None:
        self._done += count
        now = self._clock()
        if now - self._painted >= PAINT_S:
            self._painted = now
            print(ERASE_LINE + self.text(now), end="", file=sys.stderr, flush=True)

    def text(self, now: float) -> str:
        """What it is, the bar, what is done and its rate in MB, and the time left."""
        share, seconds = min(1.0, self._done / self._total), now - self._start
        bar = ("#" * round(share * BAR_CHARS)).ljust(BAR_CHARS)
        rate = self._done / seconds if seconds > 0 else 0.0
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate > 0 else ""
        numbers = f"{self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB, {rate / 1e6:.1f} MB/s"
        return f"{self._what} [{bar}] {share:4.0%} {numbers} {left}".rstrip()


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
