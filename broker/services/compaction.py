"""CompactionService: keeps, of topics with cleanup.policy=COMPACTION, the newest message of each key (Apache:
CompactionStore, CompactionService).

A message is stored as any other. Every COPY_S new ones are copied into their queue's CompactionLog, from which they are
read from then on; retention deletes files of the log whose messages are copied and synced. Every
compactionScheduleInternal the full files of each CompactionLog are compacted. Loop thread; the thread `compaction`
compacts, syncs and deletes.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from firearrow._native.base.durable_files import replace_durably
from firearrow._native.protocol import fastjson
from firearrow._native.store.compaction import compact, key_of, tags_code_of
from firearrow._native.store.log.compaction_log import (
    LOG_FOLDER,
    QUEUE_FOLDER,
    Compacted,
    CompactionFile,
    CompactionLog,
    commit_replacement,
    end_replacement,
    file_sizes,
    offset_of,
    split,
    sync_files,
)
from firearrow._native.store.message_store import GetStatus, MessageStore
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.process import ServiceThread, lower_priority
from firearrow.broker.tables.json_fields import members_or_none
from firearrow.broker.tables.topics import TopicTable

log = logging.getLogger("firearrow.compaction")

Queue = tuple[str, int]
Fetch = Callable[[str, int, int], Awaitable[tuple[bytes, int] | None]]
"""Messages of a topic's queue from an offset on, and the offset after them; None: there is none. OSError."""

COPY_S, SYNC_S = 0.2, 10.0
MESSAGES_AT_ONCE = 256
"""Copied before the loop may do other work."""
PAUSE_S = 0.001
"""The thread sleeps so long after each piece: requests go on."""
POSITIONS = "compaction/position-checkpoint"
DELETED_FOLDER = "compaction/deleted"
NO_LIMIT = (1 << 62) - 1


class CompactionService:
    """For a ThreadWatch it is its thread."""

    name = "compaction"

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: MessageStore, config: Config, topics: TopicTable
    ) -> None:
        self._loop = loop
        self._store = store
        self._config = config
        self._topics = topics
        self._logs: dict[Queue, CompactionLog] = store.reader.compacted
        self._copied: dict[Queue, int] = {}
        """The next offset to copy: messages without a key are left out."""
        self._positions: dict[str, int] = {}
        self.names: set[str] = set()
        """The compaction topics."""
        self._grown: set[Queue] = set()
        self._fetch: Fetch | None = None
        self._complete: set[Queue] = set()
        """Queues of which nothing is at the master only."""
        self._tasks: list[asyncio.Task[None]] = []
        self._durable = NO_LIMIT
        self._failing = self._stopping = False
        self._pieces = 0
        """How many the thread has compacted."""
        self._thread = ServiceThread(self.name, lower_priority, lazy=True)

    def start(self, *, killed: bool) -> None:
        """Open what is there. StartError."""
        try:
            self._load(killed)
        except OSError as error:
            what = f"{error.filename or self._store.root}: {error.strerror or error}"
            raise StartError(
                f"compacted messages cannot be opened ({what}): free disk space, or set its permissions"
            ) from None
        self._topics.listen(self._changed)
        self._tasks = [
            self._loop.create_task(self._keep_copying()),
            self._loop.create_task(self._keep_compacting()),
        ]

    def _load(self, killed: bool) -> None:
        self._positions = _load_positions(os.path.join(self._store.root, POSITIONS))
        with suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(self._store.root, DELETED_FOLDER))
        self.names |= {name for name in self._topics if self._is_compacted(name)}
        for name in self.names:
            self._durable = 0
            self._look_at(name)
            for queue_id in _queue_folders(os.path.join(self._store.root, LOG_FOLDER, name)):
                self._open((name, queue_id), verify=killed)

    async def stop(self) -> None:
        """Copy and sync the rest: Apache's broker does not copy what was stored before a clean stop."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            try:
                self._repair()
                await self._sync()
            except OSError as error:
                log.error(
                    "messages could not be copied for compaction, the next start copies them: %s", error
                )
        self._thread.shutdown()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def progress(self) -> int | None:
        """Changes while the thread works; None: it waits for work."""
        job = self._thread.progress()
        return None if job is None else job + self._pieces

    def kept(self) -> int:
        """Physical offset from which on the log has messages that are not copied and synced yet."""
        return self._durable

    def _is_compacted(self, name: str) -> bool:
        topic = self._topics.get(name)
        return topic is not None and topic.is_compacted

    def _open(self, queue: Queue, *, verify: bool, whole: bool = False) -> CompactionLog:
        opened = self._opened(queue, verify=verify, whole=whole)
        self._register(queue, opened)
        return opened

    def _register(self, queue: Queue, opened: CompactionLog) -> None:
        if queue in self._logs:
            opened.dirty |= self._logs[queue].dirty
        self._logs[queue] = opened
        self._copied[queue] = opened.end

    def _opened(self, queue: Queue, *, verify: bool, whole: bool = False) -> CompactionLog:
        options = self._config.options
        sizes = file_sizes(options.compaction_file_bytes, options.compaction_queue_file_bytes)
        opened = CompactionLog.open(
            self._store.root, *queue, sizes, verify=verify, whole=whole, report=log.info
        )
        end = self._store.next_offset(*queue)
        if 0 <= end < opened.end:
            log.info(
                "queue %d of topic %s ends at %d: compacted messages after it are deleted",
                queue[1],
                queue[0],
                end,
            )
            opened.truncate(end)
        position = _position_name(queue)
        if self._positions.get(position, -1) >= opened.end:
            self._positions[position] = opened.end - 1
        return opened

    def arrived(self, queues: set[Queue]) -> None:
        """Messages have become visible in these queues, of any topics."""
        self._grown |= {queue for queue in queues if queue[0] in self.names}

    def _look_at(self, name: str) -> None:
        """At all queues of a topic, once."""
        topic = self._topics.get(name)
        count = 0 if topic is None else max(topic.read_queues, topic.write_queues)
        self._grown |= {(name, queue_id) for queue_id in (*range(count), *self._store.reader.queue_ids(name))}

    def _changed(self, names: Iterable[str]) -> None:
        """Topics were created, changed or deleted."""
        for name in names:
            if name in self.names and name not in self._topics:
                self.names.discard(name)
                self._drop(name)
            elif name not in self.names and self._is_compacted(name):
                self._drop(name)  # Apache's broker leaves the files of a deleted topic
                self.names.add(name)
                self._look_at(name)
                self._durable = 0

    def _drop(self, name: str) -> None:
        """Forget a topic and move its files away, for the thread to delete."""
        for queue in [queue for queue in self._logs if queue[0] == name]:
            del self._logs[queue], self._copied[queue]
            self._positions.pop(_position_name(queue), None)
        self._complete = {queue for queue in self._complete if queue[0] != name}
        away = os.path.join(self._store.root, DELETED_FOLDER)
        for folder in (LOG_FOLDER, QUEUE_FOLDER):
            path = os.path.join(self._store.root, folder, name)
            if os.path.isdir(path):
                os.makedirs(away, exist_ok=True)
                os.rename(path, os.path.join(away, f"{time.time_ns()}"))
        if os.path.isdir(away):
            self._thread.submit(shutil.rmtree, away, ignore_errors=True)

    # ---- what only the master has ----

    def follow(self, fetch: Fetch) -> None:
        """On a slave: ask the master for what it has compacted and its log had no more when we began."""
        self._fetch = fetch

    async def _fetched(self, queue: Queue) -> bool:
        """Whether all that comes before the queue's first message in our log is here. OSError."""
        if queue not in self._complete:
            stop = self._store.reader.min_offset(*queue) if self._store.next_offset(*queue) >= 0 else NO_LIMIT
            if stop and self._fetch is None:
                return False
            try:
                if stop:
                    await self._fetch_until(queue, stop)
            except PermissionError as error:
                log.error(
                    "older messages of compaction topic %s stay at the master only: %s", queue[0], error
                )
            self._complete.add(queue)
        return True

    async def _fetch_until(self, queue: Queue, stop: int) -> None:
        """What a failure leaves in the folders `cleaned` is deleted with the next try."""
        assert self._fetch is not None
        target = self._opened(queue, verify=True)
        writer, at = target.replacement(), 0
        while at < stop and (found := await self._fetch(*queue, at)) is not None:
            body, at = found
            records = [record for record in split(body) if offset_of(record) < stop]
            writer.append((record, tags_code_of(record)) for record in records)
        if not writer.files or queue[0] not in self.names:
            return
        run = partial(self._loop.run_in_executor, self._thread)
        await run(sync_files, writer.dirty)
        await run(commit_replacement, target.log_folder, target.queue_folder, ())
        if queue[0] in self.names:
            target.replace(Compacted(tuple(writer.files), 0, -1))
            await run(end_replacement, target.log_folder, target.queue_folder)
            self._register(queue, target)

    # ---- copying ----

    async def _keep_copying(self) -> None:
        synced = self._loop.time()
        while True:
            await asyncio.sleep(COPY_S)
            try:
                self._repair()
                await self._copy()
                if self._loop.time() >= synced + SYNC_S or not self._durable:
                    synced = self._loop.time()
                    await self._sync()
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.error("messages could not be copied for compaction, will try again: %s", error)
                self._failing = True
            except Exception:
                log.exception("messages could not be copied for compaction, will try again")

    def _repair(self) -> None:
        """Make the entries again that do not lead to their records. OSError."""
        for queue in [queue for queue, target in self._logs.items() if target.damaged]:
            self._open(queue, verify=True, whole=True)

    async def _copy(self) -> bool:
        """Copy what is confirmed of the queues that have grown: whether of all. OSError: some cannot be copied."""
        grown, self._grown = self._grown, set()
        left: set[Queue] = set()
        failed: OSError | None = None
        for queue in sorted(grown):
            try:
                if not await self._copy_queue(queue):
                    left.add(queue)
            except OSError as error:  # continue with the other queues
                left.add(queue)
                failed = error
        self._grown |= left
        if failed is not None:
            raise failed
        return not left

    async def _copy_queue(self, queue: Queue) -> bool:
        if self._config.options.is_slave and queue not in self._logs and not await self._fetched(queue):
            return False
        while queue[0] in self.names and self._copied.get(queue, 0) < self._store.reader.max_offset(*queue):
            self._copy_some(queue, self._logs.get(queue) or self._open(queue, verify=True))
            await asyncio.sleep(0)
        return True

    def _copy_some(self, queue: Queue, target: CompactionLog) -> None:
        at = max(self._copied[queue], target.end)  # not copied whole before
        got = self._store.reader.get(*queue, at, MESSAGES_AT_ONCE)
        if got.status is GetStatus.FOUND:
            entries = self._store.reader.entries(*queue, at, got.next_offset - at)
            records = [record for record in split(got.body) if key_of(record) is not None]
            target.append((record, entries[offset_of(record) - at].tags_code) for record in records)
        elif got.next_offset <= at:
            raise OSError(f"queue {queue[1]} of topic {queue[0]} cannot be read at {at}: {got.status.name}")
        self._copied[queue] = got.next_offset

    async def _sync(self) -> None:
        """Sync what was copied. OSError."""
        names, mark = frozenset(self.names), self._store.reader.confirmed
        is_whole = await self._copy()
        dirty: set[str] = set()
        for each in self._logs.values():
            dirty |= each.dirty
            each.dirty = set()
        try:
            await self._loop.run_in_executor(self._thread, sync_files, dirty)
        except OSError:
            for each in self._logs.values():
                each.dirty |= dirty
            raise
        if is_whole and names == self.names:
            self._durable = mark if names else NO_LIMIT

    # ---- compaction ----

    async def _keep_compacting(self) -> None:
        while True:
            await asyncio.sleep(self._config.options.compaction_interval_ms / 1000)
            try:
                await self.compact()
            except OSError as error:
                log.error("messages could not be compacted, will try again: %s", error)
            except Exception:  # a task that ended would let the disk fill up
                log.exception("messages could not be compacted, will try again")

    async def compact(self) -> None:
        """Compact each queue that has new full files. OSError."""
        for queue, target in list(self._logs.items()):
            closed, position = target.closed, self._positions.get(_position_name(queue), -1)
            if any(file.last > position for file in closed):
                await self._compact_queue(queue, target, closed, position)

    async def _compact_queue(
        self, queue: Queue, target: CompactionLog, closed: tuple[CompactionFile, ...], position: int
    ) -> None:
        run = partial(self._loop.run_in_executor, self._thread)
        map_bytes = self._config.options.compaction_map_bytes
        made = await run(compact, target, closed, position, map_bytes, self._pause)
        if made is None or self._logs.get(queue) is not target:
            return
        await run(commit_replacement, target.log_folder, target.queue_folder, closed)
        if self._logs.get(queue) is not target:  # the topic was deleted meanwhile
            return
        try:
            target.replace(made)
        except OSError:
            self._open(queue, verify=False)
            raise
        self._positions[_position_name(queue)] = made.last
        await run(end_replacement, target.log_folder, target.queue_folder)
        await run(self._save_positions, dict(self._positions))
        before, after = (sum(file.entries for file in files) for files in (closed, made.files))
        log.info(
            "queue %d of topic %s: %d of %d messages are left up to offset %d",
            queue[1],
            queue[0],
            after,
            before,
            made.last,
        )

    def _pause(self) -> None:
        if self._stopping:
            raise OSError("the broker stops")
        self._pieces += 1
        time.sleep(PAUSE_S)

    def _save_positions(self, positions: dict[str, int]) -> None:
        path = os.path.join(self._store.root, POSITIONS)
        replace_durably(path, fastjson.dumps({"empty": not positions, "queueOffsetMap": positions}))


def _load_positions(path: str) -> dict[str, int]:
    """Up to which offset each queue is compacted; {} if the file does not state it: all is compacted again."""
    try:
        with open(path, "rb") as file:
            whole = members_or_none(fastjson.loads(file.read()), path)
        found = members_or_none(whole.get("queueOffsetMap"), path)
        return {name: value for name, value in found.items() if isinstance(value, int)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.info("%s cannot be read, so all compaction topics are compacted again: %s", path, error)
        return {}


def _position_name(queue: Queue) -> str:
    return f"{queue[0]}_{queue[1]}"


def _queue_folders(folder: str) -> list[int]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(
        int(name) for name in names if name.isascii() and name.isdecimal() and str(int(name)) == name
    )
