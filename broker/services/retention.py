"""Retention: deletes expired segments of the log, then the queue and index files that only referred to them.

Apache: CleanCommitLogService and CleanConsumeQueueService. Files that are not expired are deleted only when
the disk is nearly full, or after a trim if no queue has a message in them; the active segment never. One
segment of a round may be recycled as the log's next file, unless the disk is short of space.

The start of the log moves first, then that of each queue, in slices; held requests of those queues are
notified. Loop thread; a separate thread measures the disk and deletes files.
"""

import asyncio
import contextlib
import datetime
import functools
import logging
from collections.abc import Callable

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.store.files.exclusive_file import delete_recycled
from firearrow._native.store.files.segment import Segment
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.disk_space import DiskUse, Pressure, pressure
from firearrow.broker.base.process import ServiceThread, lower_priority
from firearrow.broker.tables.trimmed_queues import TrimmedQueues

log = logging.getLogger("firearrow.retention")

HOUR_MS = 3_600_000
MANUAL_ROUNDS = 20
TRIM_ROUNDS = 20
"""For so long after a trim its files are deleted; the last ones may not be flushed yet."""
SLICE = 256
"""Queues that are checked before the loop may do other work."""
ALL_MS = 1 << 62

Queue = tuple[str, int]


class Retention:
    """`measure()` runs in the separate thread, may raise OSError; `moved(queues)` gets queues whose start
    moved. From the physical offset `kept()` on nothing is deleted."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        config: Config,
        clock: Clock,
        trimmed: TrimmedQueues,
        *,
        measure: Callable[[], DiskUse],
        moved: Callable[[set[Queue]], None],
        kept: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._store = store
        self._config = config
        self._clock = clock
        self._trimmed = trimmed
        self._measure = measure
        self._moved = moved
        self._kept = kept
        self.thread = ServiceThread("retention", lower_priority)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._manual_rounds = 0
        self._trim_rounds = TRIM_ROUNDS if len(trimmed) else 0
        self._cleaned_below = -1
        self._undeleted: Segment | None = None
        """A detached segment that could not be deleted yet: no later one may be deleted before it."""
        self._undeleted_since_ms = 0
        self._failing = False
        self.use: DiskUse | None = None
        """The last measurement."""

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Return when no file is being deleted any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.thread.shutdown()

    def delete_expired(self) -> None:
        """Delete expired files in the next rounds, as if deleteWhen were now (mqadmin
        deleteExpiredCommitLog)."""
        self._manual_rounds = MANUAL_ROUNDS
        self._wake.set()

    def clean_queues(self) -> None:
        """Check all queues again (mqadmin cleanExpiredCQ)."""
        self._cleaned_below = -1
        self._wake.set()

    def free_trimmed(self) -> None:
        """Queues were trimmed: delete, in the next rounds, the files that no queue needs any more."""
        self._trim_rounds = TRIM_ROUNDS
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.options.clean_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.round()
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.warning("expired files could not be deleted, will try again: %s", error)
                self._failing = True
            except Exception:  # a task that ended would let the disk fill up
                log.exception("expired files could not be deleted, will try again")

    async def round(self) -> None:
        """Measure, delete, clean. OSError: some file could not be deleted; the next round tries again."""
        level = await self._measure_disk()
        manual, self._manual_rounds = self._manual_rounds > 0, max(self._manual_rounds - 1, 0)
        trimmed, self._trim_rounds = self._trim_rounds > 0, max(self._trim_rounds - 1, 0)
        try:
            if await self._all_deleted() and (manual or level or self._is_hour()):
                await self._delete_segments(level)
            if trimmed and await self._all_deleted():
                await self._free_segments(level)
            if level:  # the disk is short of space: no recycled segment
                await self._loop.run_in_executor(self.thread, self._store.cleaner.drop_recycled)
        finally:
            if trimmed or self._store.min_physical > self._cleaned_below:
                await self._clean()

    # ---- the disk ----

    async def _measure_disk(self) -> Pressure:
        """How full the disk is. Once full, it counts as full until its use is below
        diskSpaceCleanForciblyRatio."""
        self.use = await self._loop.run_in_executor(self.thread, self._measure)
        level = pressure(self.use, self._config.options)
        was_full = self._store.full is not None
        full = level is Pressure.FULL or (was_full and level is Pressure.FORCE)
        if full and not was_full:
            log.error("the disk is nearly full (%s): messages are refused until space is freed", self.use)
        elif was_full and not full:
            log.info("the disk has space again (%s): messages are accepted", self.use)
        self._store.full = str(self.use) if full else None
        return level

    # ---- the log ----

    def _is_hour(self) -> bool:
        hour = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone().hour
        return hour in self._config.options.delete_hours

    def expired_ms(self) -> int:
        """A file is expired if its last write was at this time or before it."""
        return self._clock.now_ms() - self._config.options.reserved_hours * HOUR_MS

    async def _delete_segments(self, level: Pressure) -> None:
        options = self._config.options
        forced = level >= Pressure.FORCE and options.clean_forcibly
        before_ms, count = ALL_MS if forced else self.expired_ms(), 0
        while count < options.delete_files_max:
            if count:
                await asyncio.sleep(options.delete_interval_ms / 1000)
            segment = self._store.cleaner.detach_segment(modified_before_ms=before_ms, until=self._kept())
            if segment is None:
                break
            count += 1
            await self._delete(segment, reuse=not level)
        if count:
            log.info("deleted %d segments, the log starts at %d", count, self._store.min_physical)
        elif level:
            log.warning("the disk is filling up (%s), but no segment of the log may be deleted", self.use)

    async def _free_segments(self, level: Pressure) -> None:
        """Delete the segments that end before the first message of every queue, whatever their age."""
        needed, count = await self._first_needed(), 0
        while count < self._config.options.delete_files_max:
            segment = self._store.cleaner.detach_segment(
                modified_before_ms=ALL_MS, until=min(needed, self._kept())
            )
            if segment is None:
                break
            count += 1
            await self._delete(segment, reuse=not level)
        if count:
            log.info("deleted %d trimmed segments, the log starts at %d", count, self._store.min_physical)

    async def _first_needed(self) -> int:
        """Physical offset of the first message of all queues; messages that arrive meanwhile are after it."""
        needed = self._store.written
        for number, queue in enumerate(self._store.reader.queues()):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            first = self._store.cleaner.first_physical(*queue)
            needed = min(needed, first) if first >= 0 else needed
        return needed

    async def _delete(self, segment: Segment, *, reuse: bool = False) -> None:
        self._undeleted, self._undeleted_since_ms = segment, self._clock.monotonic_ms()
        delete = functools.partial(self._store.cleaner.discard_segment, segment, reuse=reuse)
        await self._loop.run_in_executor(self.thread, delete)
        self._undeleted = None

    async def _all_deleted(self) -> bool:
        """Whether every detached segment is deleted; retries one that is not after
        redeleteHangedFileInterval."""
        if self._undeleted is None:
            return True
        waited_ms = self._clock.monotonic_ms() - self._undeleted_since_ms
        if waited_ms >= self._config.options.redelete_interval_ms:
            await self._delete(self._undeleted)
        return self._undeleted is None

    # ---- queues and index ----

    async def _clean(self) -> None:
        begin, failed = self._store.min_physical, None
        for number, queue in enumerate(self._store.reader.queues()):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            try:
                await self._clean_queue(queue)
            except OSError as error:  # continue with the other queues
                failed = error
        for file in self._store.cleaner.detach_index_files():
            await self._loop.run_in_executor(self.thread, delete_recycled, file)
        if failed is not None:
            raise failed
        for queue in self._trimmed.forget_below(begin):
            self._store.cleaner.forget_trim(*queue)
        self._cleaned_below = begin

    async def _clean_queue(self, queue: Queue) -> None:
        moved, gone = self._store.cleaner.clean_queue(*queue, at_most=1)
        if moved:
            self._moved({queue})
        while gone:
            await self._pause(queue)
            _, gone = self._store.cleaner.clean_queue(*queue, at_most=1)

    async def _pause(self, queue: Queue) -> None:
        """Make the deletion durable before the queue's next file is deleted."""
        topic, queue_id = queue
        folder = self._store.queue_folder(topic, queue_id)
        await self._loop.run_in_executor(self.thread, _sync_folder, folder)
        await asyncio.sleep(self._config.options.queue_delete_interval_ms / 1000)


def _sync_folder(folder: str) -> None:
    """Sync the folder, unless the queue was deleted concurrently."""
    with contextlib.suppress(FileNotFoundError):
        fsync_dir(folder)
