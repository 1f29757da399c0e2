"""Signals, thread priority, executors, memory settings and age of this process.

Loop thread, except `lower_priority`, which the thread itself calls, and the jobs of a `ServiceThread`.
"""

import asyncio
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from firearrow._native.base import malloc

P = ParamSpec("P")
T = TypeVar("T")

FREE_BYTES_MAX = 64 << 20
"""Free memory that malloc keeps instead of returning it to the system."""
MAPPED_BUFFER_BYTES = 1 << 20
"""Larger buffers are mapped separately: among smaller ones that stay in use, the memory of huge frames would
never be returned, and the next ones would take half as much again."""
REPEATED_S = 0.3
"""A second SIGINT within this time is the first one, which a wrapper has passed on."""
THREAD_NICENESS = 10
"""Added niceness: about a tenth of the loop thread's CPU share when both are busy."""


class StopSignals:
    """Calls `stop` on the first SIGTERM or SIGINT, and on SIGHUP if its terminal was closed or there is nothing to
    `reload`; under nohup SIGHUP stays ignored. During the stop all are ignored, since supervisors repeat signals and
    wrappers pass on those that the process group gets; only a second Ctrl-C at a terminal ends the process at once.
    Until `handle`, signals have their default action."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reload: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._reload = reload
        self._stop: Callable[[], None] | None = None
        self._had_terminal = False
        self._interrupted_s = math.inf
        self.stopped = False
        """The process is to end."""

    @property
    def are_handled(self) -> bool:
        """This is not the first start of the broker in this process."""
        return self._stop is not None

    def handle(self, stop: Callable[[], None]) -> None:
        """Handle signals from now on; called again, only replaces `stop`. Also configures malloc, so that large freed
        blocks are returned to the system."""
        first, self._stop = self._stop is None, stop
        if not first:
            return
        malloc.set_malloc_thresholds(FREE_BYTES_MAX, blocks_below=MAPPED_BUFFER_BYTES)
        self._had_terminal = _has_terminal()
        # not handlers of the loop: closed, it restores the default actions while the process still ends
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, self._on_interrupt)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_hangup)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def _on_terminate(self, number: int, frame: object) -> None:
        self._call_soon(self._end)

    def _on_interrupt(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self._had_terminal and now - self._interrupted_s > REPEATED_S:
            os._exit(128 + number)
        self._interrupted_s = min(self._interrupted_s, now)
        self._call_soon(self._end)

    def _on_hangup(self, number: int, frame: object) -> None:
        self._call_soon(self._hang_up)

    def _call_soon(self, called: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends already
            self._loop.call_soon_threadsafe(called)

    def _hang_up(self) -> None:
        if self._reload is None or (self._had_terminal and not _has_terminal()):
            self._end()
        elif not self.stopped:
            self._reload()

    def _end(self) -> None:
        if not self.stopped:
            self.stopped = True
            # to the end of the process: of a handler, Python restores the default action before
            ignored = {signal.SIGTERM, signal.SIGHUP} | (set() if self._had_terminal else {signal.SIGINT})
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
        if self._stop is not None:
            self._stop()


def hold_hangups() -> None:
    """Keep a SIGHUP that comes during the start until `StopSignals.handle`; by default it would kill the process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal, which it loses when that is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def ignore_user_signals() -> None:
    """SIGUSR1 and SIGUSR2 mean nothing here; by default they would kill the process."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


class ServiceThread(ThreadPoolExecutor):
    """An executor with one thread, which calls `initializer` first, and which a ThreadWatch can watch: a thread that
    ended would leave its callers waiting for ever.

    It is started now: a pool would start it with the first job, and if memory has run out by then, callers would wait
    for that job for ever. `lazy`: with the first job.
    """

    def __init__(
        self, name: str, initializer: Callable[[], None] | None = None, *, lazy: bool = False
    ) -> None:
        super().__init__(1, name, self._begin)
        self.name = name
        self._prepare = initializer
        self._thread: threading.Thread | None = None
        self._begun = self._ended = 0
        """Numbers of jobs; only the thread changes them."""
        self._is_shut = False
        if not lazy:
            self.submit(int)

    def submit(self, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        return super().submit(self._run, job, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        super().shutdown(wait, cancel_futures=cancel_futures)

    def is_alive(self) -> bool:
        """False if it ended, but not by `shutdown`."""
        return self._is_shut or self._thread is None or self._thread.is_alive()

    def progress(self) -> int | None:
        """The number of the job that runs; None: it waits for one."""
        return self._begun if self._begun != self._ended else None

    def _begin(self) -> None:
        self._thread = threading.current_thread()
        if self._prepare is not None:
            self._prepare()

    def _run(self, job: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._begun += 1
        try:
            return job(*args, **kwargs)
        finally:
            self._ended = self._begun


def lower_priority() -> None:
    """Lower the priority of the calling thread: otherwise a flush takes slices of 4 ms from the loop thread
    on a busy core. Not for the loop thread, nor for a thread that answers wait for."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # then it keeps its priority
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + THREAD_NICENESS)


def seconds_since_start() -> float:
    """Seconds since the process was created, imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
