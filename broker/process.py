"""What a process of ours does as a process: stop on signals, know its age. Loop thread."""

import asyncio
import os
import signal
import time
from pathlib import Path


def stop_on_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Set `stopping` on the first SIGTERM or SIGINT; the second one ends the process at once."""

    def heard(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)


def seconds_since_start() -> float:
    """Since the process was made, imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
