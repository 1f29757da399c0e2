"""ProcessExecutor: the audit's work on several cores, one process each, since its native loops keep the GIL.

A small store is looked at in this process: to start another takes longer than to read 200 MB. Ctrl-C ends the others
with what they have in hand.

Progress of a tool on stderr: a bar at a terminal, nothing elsewhere. Rich paints in a thread of its own.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Self, TypeVar

Advance = Callable[[int], None]
"""So many bytes, or things, more are done."""
BAR_FROM = 1


@contextlib.contextmanager
def progress_bar(what: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """A bar of `total` while it lasts."""
    if quiet or total < BAR_FROM or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as bar  # noqa: PLC0415 (nothing of it is needed without a terminal)
    from rich.console import Console  # noqa: PLC0415

    speed = (bar.DownloadColumn(), bar.TransferSpeedColumn(), bar.TimeRemainingColumn())
    columns = (bar.TextColumn("{task.description}"), bar.BarColumn(), *speed)
    with bar.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.advance(task, count)


SERIAL_BYTES = 256 << 20
PART_BYTES = 256 << 20
PARTS_MAX = 4096
T = TypeVar("T")
R = TypeVar("R")


class ProcessExecutor:
    """A Lane of the audit. `log_bytes`: how much there is to read. Context manager."""

    def __init__(self, log_bytes: int, *, jobs: int = 0, quiet: bool = True) -> None:
        """`jobs` 0: as many as there are cores."""
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.width = min(PARTS_MAX, max(1, -(-log_bytes // PART_BYTES)))
        self._quiet = quiet
        self._alone = self.jobs == 1 or log_bytes < SERIAL_BYTES
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
        if self._alone or len(tasks) < 2:
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
    """A process that is started meanwhile leaves Ctrl-C to the first one, from its first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
