"""Flusher: brings the log to the disk in a thread of its own, every flushIntervalCommitLog. Under SYNC_FLUSH each turn
asks a second one, the group commit (the next turn's messages gather while one sync runs). Touches no table."""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable

from firearrow._native.store.group_commit import GroupCommit
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.process import lower_priority

log = logging.getLogger("firearrow.flusher")

QUEUES_A_SECOND = 1000
"""No more are flushed in the mean: each has a file to be synced, and what a power cut takes of them is read from the
log again."""
QUEUES_THOROUGH_S = 60.0
"""As often as Apache flushes all of them."""
SETTLE_S = 0.1
"""Who waits for the log looks again by then: the thread may have ended."""


class Flusher:
    """`synced(offset)` and `failed(error)` are called in the loop's thread."""

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
        self._commits = GroupCommit(store) if sync_flush else None
        self._interval_ms = interval_ms
        self._queue_interval_ms = queue_interval_ms
        self._synced = synced
        self._failed = failed
        self._wake = threading.Event()
        self._passed = threading.Condition()
        self._stopping = self._refused = False
        self._unprepared = self._unmarked = False
        self._queues_at = 0.0
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if self._commits is not None:
            self._commits.start()
            self._loop.add_reader(self._commits.fileno(), self._committed)

    def request_sync(self) -> None:
        """What is written is to be on the disk soon; `synced` tells when."""
        if self._commits is not None:
            self._commits.request_sync()

    def sync_to_disk(self) -> None:
        """What is written to the log by now is on the disk when this returns; not for the loop's thread while this one
        runs. OSError: the disk has refused a flush."""
        until = self._store.written
        with self._passed:
            while self._store.flushed < until and self._thread.is_alive():
                self._wake.set()
                self._passed.wait(SETTLE_S)
        if self._store.flushed < until:
            if not self._store.writable:
                raise OSError(errno.EIO, "the log cannot be flushed")
            self._store.sync()

    def stop(self) -> None:
        """Return when the thread has ended; what is unsynced is left to the store's close."""
        self._stopping = True
        self._wake.set()
        if self._commits is not None:
            self._loop.remove_reader(self._commits.fileno())
            self._commits.stop()
        if self._thread.is_alive():
            self._thread.join()

    def _committed(self) -> None:
        """The group commit has something to tell."""
        assert self._commits is not None
        try:
            offset = self._commits.collect_synced()
        except OSError as error:
            self._loop.remove_reader(self._commits.fileno())
            self._stopping = True
            self._wake.set()
            return self._give_up(error)
        with self._passed:
            self._passed.notify_all()
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
                log.error("no memory to flush: tried again")
            except Exception as error:
                return self._call(self._give_up, error)

    def _once(self) -> None:
        self._prepare()
        if self._store.flushed < self._store.written:
            offset = self._store.sync()
            if self._commits is not None:
                self._call(self._synced, offset)
            with self._passed:
                self._passed.notify_all()
        if self._loop.time() >= self._queues_at:
            rest_s = min(self._flush_queues() / QUEUES_A_SECOND, QUEUES_THOROUGH_S)
            self._queues_at = self._loop.time() + max(rest_s, self._queue_interval_ms() / 1000)

    def _give_up(self, error: Exception) -> None:
        """The first of the threads to whom the disk refused tells it; the other one hears the same."""
        if self._refused:
            return
        self._refused = True
        log.critical(
            "the disk refused a flush, and what it holds is in doubt: no more messages are taken, those that "
            "were confirmed can still be read. Mend the disk and start the broker again: %s", error,
        )  # fmt: skip
        self._failed(error)

    def _flush_queues(self) -> int:
        """How many had something. A checkpoint that cannot be written (no room, no descriptor) costs nothing but time
        after a crash."""
        try:
            flushed = self._store.flush_queues()
        except OSError as error:
            if not self._store.writable:
                raise
            if not self._unmarked:
                log.warning("the checkpoint could not be written, will try again: %s", error)
            self._unmarked = True
            return 0
        self._unmarked = False
        return flushed

    def _prepare(self) -> None:
        """Without a segment made ahead the next one is made when it is needed, and a full disk is told then. Before the
        sync, which gets in the way of writes that need new blocks."""
        try:
            self._store.prepare()
        except OSError as error:
            if not self._unprepared:
                log.warning("the next log segment could not be made ahead: %s", error)
            self._unprepared = True
        else:
            self._unprepared = False

    def _call(self, callback: Callable[..., None], value: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, value)
        except RuntimeError:
            if not self._stopping:
                raise
