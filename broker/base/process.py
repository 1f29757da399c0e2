"""What a process of ours does as a process: stop on signals, know its age, give memory back, have its threads, let the
loop go first. Loop thread, but for `lower_priority`."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firearrow._native.base import malloc

KEPT_BYTES = 64 << 20
BUFFER_BYTES = 1 << 20
"""Buffers of connections and segments from here on are mapped apart: among smaller ones that stay, what a crowd of huge
frames took would never come back, and half as much more would be taken for the next."""
BEHIND = 10
"""Steps of niceness: a tenth of the loop's share, where both would take all."""


def stop_on_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Set `stopping` on the first SIGTERM or SIGINT; the second one ends the process at once. What is freed in large
    pieces goes back to the system."""
    malloc.set_malloc_thresholds(KEPT_BYTES, blocks_below=BUFFER_BYTES)

    def heard(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)


def single_thread_executor(
    name: str, stop_on_signals: Callable[[], None] | None = None
) -> ThreadPoolExecutor:
    """Does one work after the other. Its thread, which starts with `stop_on_signals`, is there from now on: a pool would start it
    with the first work, and where memory has run out by then, what waits for that work would wait for ever."""
    pool = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=stop_on_signals)
    pool.submit(int)
    return pool


def lower_priority() -> None:
    """This thread's work can wait while the loop has some: without it a flush takes slices of 4 ms of a busy core. For
    itself, any thread but the loop's and one that answers wait for."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # then it is as important as the loop
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + BEHIND)


def seconds_since_start() -> float:
    """Since the process was made, imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
