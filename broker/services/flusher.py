"""Flusher: syncs the log to disk in a separate thread, every flushIntervalCommitLog. Touches no table.

Under SYNC_FLUSH each write batch wakes a second thread, the group commit; the messages of the next batches
gather while a sync runs.
"""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Callable

from firearrow._native.base.histogram import Histogram
from firearrow._native.store.group_commit import FLUSH_BOUNDS_US, GroupCommit
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.process import lower_priority

log = logging.getLogger("firearrow.flusher")

QUEUES_PER_SECOND_MAX = 1000
"""On average: each queue has a file to sync, and recovery rebuilds from the log what a power cut loses."""
QUEUE_FLUSH_PAUSE_MAX_S = 60.0
"""Apache's interval for flushing all queues."""
WAIT_POLL_S = 0.1
"""`sync_to_disk` checks this often whether the thread is still alive."""


class Flusher:
    """`synced(offset)` and `failed(error)` are called in the loop thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        *,
        sync_flush: bool,
        interval_ms: Callable[[], int],
        queue_interval_ms: Callable[[], int],
        synced: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self.flushes = Histogram(FLUSH_BOUNDS_US)
        """The length of each sync of the log, in microseconds."""
        self._commits = GroupCommit(store, self.flushes) if sync_flush else None
        self._interval_ms = interval_ms
        self._queue_interval_ms = queue_interval_ms
        self._synced = synced
        self._failed = failed
        self._wake = threading.Event()
        self._flush_done = threading.Condition()
        self._stopping = self._failure_reported = False
        self._prepare_failing = self._checkpoint_failing = False
        self._queues_due_at = 0.0
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if self._commits is not None:
            self._commits.start()
            self._loop.add_reader(self._commits.fileno(), self._committed)

    def request_sync(self) -> None:
        """Ask for a sync of all that is written; `synced` is called when it is done."""
        if self._commits is not None:
            self._commits.request_sync()

    def sync_to_disk(self) -> None:
        """Return when all that is written to the log now is on disk. Never call it in the loop thread while
        the flusher runs: it blocks. OSError: the disk failed a flush."""
        target = self._store.written
        with self._flush_done:
            while self._store.flushed < target and self._thread.is_alive():
                self._wake.set()
                self._flush_done.wait(WAIT_POLL_S)
        if self._store.flushed < target:
            if not self._store.writable:
                raise OSError(errno.EIO, "the log cannot be flushed")
            self._store.sync()

    def stop(self) -> None:
        """Return when the thread has ended; closing the store syncs the rest."""
        self._stopping = True
        self._wake.set()
        if self._commits is not None:
            self._loop.remove_reader(self._commits.fileno())
            self._commits.stop()
        if self._thread.is_alive():
            self._thread.join()

    def _committed(self) -> None:
        """The group commit finished a sync, or failed."""
        assert self._commits is not None
        try:
            offset = self._commits.collect_synced()
        except OSError as error:
            self._loop.remove_reader(self._commits.fileno())
            self._stopping = True
            self._wake.set()
            return self._fail(error)
        with self._flush_done:
            self._flush_done.notify_all()
        return self._synced(offset)

    def _run(self) -> None:
        lower_priority()
        while not self._stopping:
            self._wake.wait((self._queue_interval_ms() if self._commits else self._interval_ms()) / 1000)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._once()
            except MemoryError:
                log.error("no memory to flush, will try again")
            except Exception as error:
                return self._call(self._fail, error)

    def _once(self) -> None:
        self._prepare()
        if self._store.flushed < self._store.written:
            began = time.monotonic_ns()
            offset = self._store.sync()
            self.flushes.record((time.monotonic_ns() - began) // 1000)
            if self._commits is not None:
                self._call(self._synced, offset)
            with self._flush_done:
                self._flush_done.notify_all()
        if self._loop.time() >= self._queues_due_at:
            pause_s = min(self._flush_queues() / QUEUES_PER_SECOND_MAX, QUEUE_FLUSH_PAUSE_MAX_S)
            self._queues_due_at = self._loop.time() + max(pause_s, self._queue_interval_ms() / 1000)

    def _fail(self, error: Exception) -> None:
        """Report the failure once: flusher and group commit both see it."""
        if self._failure_reported:
            return
        self._failure_reported = True
        log.critical(
            "the disk failed a flush, so unconfirmed messages may not be on it: no more messages are "
            "accepted, confirmed ones can still be read. Repair the disk and restart the broker: %s",
            error,
        )
        self._failed(error)

    def _flush_queues(self) -> int:
        """Flush the queues; the number that had changes. A checkpoint that cannot be written (no space, no
        descriptor) only makes the next recovery slower."""
        try:
            flushed = self._store.flush_queues()
        except OSError as error:
            if not self._store.writable:
                raise
            if not self._checkpoint_failing:
                log.warning("the checkpoint could not be written, will try again: %s", error)
            self._checkpoint_failing = True
            return 0
        self._checkpoint_failing = False
        return flushed

    def _prepare(self) -> None:
        """Preallocate the next segment. Without one it is created when it is needed, and a full disk is
        reported then. Done before the sync, which slows down writes that need new blocks."""
        try:
            self._store.prepare()
        except OSError as error:
            if not self._prepare_failing:
                log.warning("the next log segment could not be preallocated: %s", error)
            self._prepare_failing = True
        else:
            self._prepare_failing = False

    def _call(self, callback: Callable[..., None], value: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, value)
        except RuntimeError:
            if not self._stopping:
                raise
