"""Shows a job's progress on stderr: share, messages, bytes, rate, time left.

On a terminal one line that is updated, otherwise a new line every LINE_S. Only reads progress files. A
separate thread, which ends with the block.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress

PAINT_S = 0.5
LINE_S = 10.0


@dataclass(slots=True)
class ProgressView:
    """The progress read so far; finished slices are not read again."""

    progress_files: ProgressFiles
    slices: Sequence[Slice]
    finished: dict[int, SliceProgress] = field(default_factory=dict)

    def look(self) -> tuple[int, int, int]:
        """(offsets passed, messages, bytes) of all slices until now."""
        seen = dict(self.finished)
        for progress in self.progress_files.written(without=self.finished.keys() | set()):
            if progress.number >= len(self.slices):
                continue
            seen[progress.number] = progress
            if progress.next >= self.slices[progress.number].part.end:
                self.finished[progress.number] = progress
        passed = sum(progress.next - self.slices[progress.number].part.start for progress in seen.values())
        messages = sum(progress.counts.get("messages", 0) for progress in seen.values())
        return passed, messages, sum(progress.counts.get("bytes", 0) for progress in seen.values())


@contextmanager
def shown(job: str, progress_files: ProgressFiles, slices: Sequence[Slice], *, quiet: bool) -> Iterator[None]:
    """Show progress while the block runs, and a last time at its end."""
    if quiet:
        yield
        return
    ended = threading.Event()
    console = Console(stderr=True)
    paint = _bar if console.is_terminal else _lines
    thread = threading.Thread(
        target=paint,
        args=(job, ProgressView(progress_files, slices), ended, console),
        name="firearrow-progress",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bar(job: str, view: ProgressView, ended: threading.Event, console: Console) -> None:
    total = sum(len(slice_.part) for slice_ in view.slices)
    columns = (
        SpinnerColumn(),
        TextColumn(job),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[throughput]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        rate = ThroughputMeter(time.monotonic)
        before = view.look()[0]
        task = progress.add_task(job, total=total, completed=before, throughput="")
        while True:
            last = ended.wait(PAINT_S)
            passed, messages, size = view.look()
            progress.update(task, completed=passed, throughput=rate.text(messages, size))
            if last:
                return


def _lines(job: str, view: ProgressView, ended: threading.Event, console: Console) -> None:
    total = max(1, sum(len(slice_.part) for slice_ in view.slices))
    rate = ThroughputMeter(time.monotonic)
    rate.text(*view.look()[1:])
    while True:
        last = ended.wait(LINE_S)
        passed, messages, size = view.look()
        print(f"{job}: {100 * passed // total} %, {rate.text(messages, size)}", file=sys.stderr)
        if last:
            return


@dataclass(slots=True)
class ThroughputMeter:
    """Messages and bytes in total, and per second since the first call."""

    clock: Callable[[], float]
    start: tuple[float, int, int] | None = None

    def text(self, messages: int, size: int) -> str:
        now = self.clock()
        if self.start is None:
            self.start = now, messages, size
        since, first, first_size = self.start
        seconds = max(now - since, 1e-3)
        return (
            f"{messages:,} messages, {size / 1e6:,.0f} MB, "
            f"{(messages - first) / seconds:,.0f}/s, {(size - first_size) / 1e6 / seconds:,.0f} MB/s"
        )
