"""Flusher: syncs the log to disk in a separate thread, every flushIntervalCommitLog. Touches no table.

Under SYNC_FLUSH each write batch wakes a second thread, the group commit; the messages of the next batches
gather while a sync runs. Neither may end before `stop`: without syncs nothing is acknowledged any more, so each
reports why it ended, and a ThreadWatch looks at them besides.
"""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

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
RETRY_S = 0.1
"""Without memory, what was synced is collected again after this time."""
DISK_FAILED = (
    "the disk failed a flush ({}), and unconfirmed messages may be lost: repair it and restart the broker"
)


class GroupCommitThread:
    """The group commit, as a ThreadWatch sees it: a sync that hangs shows in the log's progress."""

    name = "group-commit"

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits

    def is_alive(self) -> bool:
        return self._commits.is_alive()

    def progress(self) -> int | None:
        return None


class SyncThread(Protocol):
    """As a ThreadWatch needs it."""

    name: str

    def is_alive(self) -> bool: ...
    def progress(self) -> int | None: ...


class Flusher:
    """What it calls is given to `start`: the write batch, which needs `request_sync`, is made in between."""

    name = "flusher"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        *,
        sync_flush: bool,
        interval_ms: Callable[[], int],
        queue_interval_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._store = store
        self.flushes = Histogram(FLUSH_BOUNDS_US)
        """The length of each sync of the log, in microseconds."""
        self._commits = GroupCommit(store, self.flushes) if sync_flush else None
        self._interval_ms = interval_ms
        self._queue_interval_ms = queue_interval_ms
        self._synced: Callable[[int], None] = lambda offset: None
        self._ended: Callable[[str, str], None] = lambda thread, reason: None
        self._wake = threading.Event()
        self._flush_done = threading.Condition()
        self._stopping = self._is_reported = False
        self._prepare_failing = self._checkpoint_failing = False
        self._begun = self._done = 0
        """Numbers of sweeps, that began and of the last one that was complete; only the thread changes them."""
        self._queues_due_at = 0.0
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self, synced: Callable[[int], None], ended: Callable[[str, str], None]) -> None:
        """`synced(offset)` and `ended(thread, reason)` are called in the loop thread."""
        self._synced, self._ended = synced, ended
        self._thread.start()
        if self._commits is not None:
            self._commits.start()
            self._loop.add_reader(self._commits.fileno(), self._committed)

    @property
    def threads(self) -> list[SyncThread]:
        """For a ThreadWatch."""
        return [self] if self._commits is None else [self, GroupCommitThread(self._commits)]

    def is_alive(self) -> bool:
        """False if it ended, neither by `stop` nor with a report."""
        return self._stopping or self._is_reported or self._thread.is_alive()

    def progress(self) -> int | None:
        """The number of the last sweep, while one runs or is repeated; None: it waits for the next."""
        return self._done if self._begun != self._done else None

    def request_sync(self) -> None:
        """Ask for a sync of all that is written; `synced` is called when it is done."""
        if self._commits is not None:
            try:
                self._commits.request_sync()
            except MemoryError:  # the flusher needs less
                self._wake.set()

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
            self._synced(self._commits.collect_synced())
            with self._flush_done:
                self._flush_done.notify_all()
        except MemoryError:
            log.error("no memory to answer what is synced, will try again")
            self._loop.call_later(RETRY_S, self._committed_again)
        except Exception as error:
            self._loop.remove_reader(self._commits.fileno())
            self._stopping = True
            self._wake.set()
            self._report(GroupCommitThread.name, error)

    def _committed_again(self) -> None:
        if not self._stopping:
            self._committed()

    def _run(self) -> None:
        try:
            lower_priority()
            while not self._stopping:
                self._wake.wait((self._queue_interval_ms() if self._commits else self._interval_ms()) / 1000)
                self._wake.clear()
                if not self._stopping:
                    self._sweep()
        except BaseException as error:  # whatever it is: without this thread nothing may be acknowledged
            self._call(self._report, self.name, error)
            self._is_reported = True

    def _sweep(self) -> None:
        self._begun = self._done + 1
        try:
            self._once()
        except MemoryError:
            log.error("no memory to flush, will try again")
        else:
            self._done = self._begun

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

    def _report(self, thread: str, error: BaseException) -> None:
        """Report why a thread has ended: the disk, or a fault of the broker."""
        if isinstance(error, OSError):
            return self._ended(thread, DISK_FAILED.format(error.strerror or error))
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        log.error("the %s thread has ended by a fault of the broker", thread, exc_info=error)
        return self._ended(
            thread, f"the {thread} thread has ended ({what}): restart the broker and report this"
        )

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

    def _call(self, callback: Callable[..., None], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *values)
        except RuntimeError:
            if not self._stopping:
                raise
