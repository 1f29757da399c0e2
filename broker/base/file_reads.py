"""Reads of files that may hang, as on a disk that is lost, or that are not files, as a FIFO: never on the loop.

FileReader has one daemon thread, so that a read that never ends holds up neither the loop nor the end of the process.
"""

import asyncio
import errno
import logging
import os
import queue
import stat
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger("firearrow.files")

LATE_S = 5.0
"""After this time a read is reported as hanging."""
T = TypeVar("T")


def read_regular(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """The bytes of a regular file. OSError: also of anything else, without waiting for it. ValueError: it is larger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"it is larger than {bytes_max} bytes")
    return data


class FileReader(Generic[T]):
    """`read()` runs in the thread, then `done(result)` on the loop. `what`: the files, in a log line."""

    def __init__(self, what: str, read: Callable[[], T], done: Callable[[T], None]) -> None:
        self._what = what
        self._read = read
        self._done = done
        self._jobs: queue.SimpleQueue[asyncio.AbstractEventLoop] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: asyncio.TimerHandle | None = None
        """Of the read that runs."""
        self._is_reported = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read, unless the last read has not ended."""
        if self._late is not None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="files", daemon=True)
            self._thread.start()
        self._late = loop.call_later(LATE_S, self._report)
        self._jobs.put(loop)

    def _report(self) -> None:
        self._is_reported = True
        log.error("%s cannot be read, for %.0f s now: what was read before stays in use", self._what, LATE_S)

    def _run(self) -> None:
        while True:
            loop = self._jobs.get()
            try:
                result = self._read()
            except BaseException:
                log.exception("%s were not read", self._what)
                self._call(loop, self._ended)
            else:
                self._call(loop, self._take, result)

    def _call(self, loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *given: T) -> None:
        try:
            loop.call_soon_threadsafe(callback, *given)
        except RuntimeError:
            log.debug("the loop has ended")

    def _take(self, result: T) -> None:
        self._ended()
        self._done(result)

    def _ended(self) -> None:
        assert self._late is not None
        self._late.cancel()
        self._late = None
        if self._is_reported:
            self._is_reported = False
            log.info("%s can be read again", self._what)
