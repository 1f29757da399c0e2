"""MessageStore: an open store folder (see message_store.pxd). Knows no socket, no asyncio, no clock."""

import errno
import os
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.store_cleaner cimport StoreCleaner
from firearrow._native.store.log.batch_consume_queue cimport (
    copy_entries, inner_number, is_batch, next_offset, put_batch,
)
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.base.hash cimport body_crc
from firearrow._native.store.files.layout cimport (
    BATCH_COUNT_MAX, PROPERTIES_BYTES_MAX, RECORD_END_BYTES, RECORD_OVER_BODY_BYTES, SYS_BORN_V6,
    SYS_INNER_BATCH, SYS_PREPARED, SYS_ROLLBACK, SYS_STORE_V6, SYS_TRANSACTION, TOPIC_BYTES_MAX,
    TOPIC_V1_BYTES_MAX,
)
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.store_reader cimport StoreReader
from firearrow._native.store.log.record cimport (
    Message, Properties, RecordView, Text, encode_record, record_bytes, scan_properties,
)

from firearrow._native.store.files import page_cache
from firearrow._native.store.files.config_files import deletions, topic_kinds
from firearrow._native.store.log.batch import items_of
from firearrow._native.store.log.checkpoint import Checkpoint
from firearrow._native.store.log.commit_log import CommitLog as Log
from firearrow._native.store.confirm_offset import ConfirmOffsetFile
from firearrow._native.store.log.dispatcher import is_file_name
from firearrow._native.store.recovery.consistency import check_consistency, fingerprint
from firearrow._native.store.files.errors import StoreDamaged, StoreError, StoreForeign, StoreLocked
from firearrow._native.store.get_message import GetStatus, GetResult
from firearrow._native.store.store_folder import StoreFolder
from firearrow._native.store.log.key_index import KeyIndex as Index
from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.results import (
    PutResult, PutRefused, PutStatus, QueueEntry, WriteRefusal,
)
from firearrow._native.store.recovery.recovery import recover

__all__ = [
    "GetStatus", "GetResult", "InnerMessage", "MessageStore", "PutResult", "PutRefused", "PutStatus",
    "QueueEntry", "StoreConfig", "StoreDamaged", "StoreError", "StoreForeign", "StoreLocked",
    "WriteRefusal",
]

QUEUE_ID_MAX = 65535
MAKE_FILES_S = 0.5
"""A flush makes files of lite topics for so long: syncs of the log wait for it."""
STOP_FILES_MAX = 10_000
"""With more lite topics without files a stop leaves them to the next start, which finds them in the log."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)   # limits of the process, no error of the disk
DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How a store is opened (Apache: MessageStoreConfig). File sizes must match those of existing files."""
    commitlog_path: str | None = None
    """Folder of the log; None: `commitlog` in the store folder."""
    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    batch_queue_file_bytes: int = 13_800_000
    """Of the queues of BatchCQ topics."""
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    max_message_bytes: int = 4 << 20
    check_crc: bool = True
    """Recovery checks the CRC of bodies."""
    sync_flush: bool = False
    """Readers see a message only after `confirm`, which the caller calls after a sync."""
    confirm_later: bool = False
    """Readers see a message only after `confirm`, also without `sync_flush`, and what was not confirmed
    before a stop or a kill only after it is."""
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    lmq: bool = False
    """Messages may name LMQs (%LMQ%…) that get an entry as well."""
    truncate_at: int | None = None
    """A record's physical offset, where the log is to end if it is longer: what comes later is kept under
    `damaged/`, queues and index follow. StoreDamaged: no record begins there."""


@cython.final
@cython.dataclasses.dataclass
cdef class InnerMessage:
    """A message or batch to be stored (Apache: MessageExtBrokerInner). Only the store reads it.

    Hosts: 4 or 16 address bytes + i32 port; the store sets the IPv6 bits of `sys_flag`. tagsCode and keys are
    taken from `properties`. A batch has all items in `body`, with their own properties and flags."""
    topic: str
    queue_id: int64_t
    body: bytes
    properties: bytes
    born_timestamp: int64_t
    born_host: bytes
    store_host: bytes
    flag: int32_t = 0
    sys_flag: int32_t = 0
    reconsume_times: int32_t = 0
    prepared_offset: int64_t = 0


cdef inline bytes bytes_of(const Text *text):
    return PyBytes_FromStringAndSize(<const char *> text.at, text.length)


cdef inline Text text_of(bytes data):
    return Text(at=<const uint8_t *> PyBytes_AS_STRING(data), length=len(data))


cdef int illegal(str field) except -1:
    raise PutRefused(PutStatus.MESSAGE_ILLEGAL, field)


cdef class MessageStore:
    """An open store folder. One thread makes all calls but those noted; readers see entries below
    `confirmed`."""

    # ---- opening and closing ----

    @staticmethod
    def open(root, config=StoreConfig(), *, progress=None):
        # type: (str | PathLike[str], StoreConfig, Callable[[str], None] | None) -> MessageStore
        """Lock the folder, recover it (truncate the torn tail, rebuild queues and index), write `abort`.

        StoreLocked: another broker uses it. StoreForeign: not a store of FireArrow's or Apache's, or
        other file sizes. StoreDamaged: damage that recovery must not remove. OSError: disk full, no
        permission."""
        try:
            return open_once(root, config, progress)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        # on ext4, what a killed process wrote may have no blocks yet, only space that is reserved for it
        sync_file_system(os.fspath(root))
        return open_once(root, config, progress)

    def load(self, repair_log, config):
        log_folder = config.commitlog_path or self.folder.path("commitlog")
        if self.folder.was_killed:
            self.unsettled = True
            if page_cache.is_suspect(self.root):
                page_cache.drop_page_cache(self.root, log_folder, repair_log)
            self.folder.delete_incomplete_files()
        self.log = Log.open(log_folder, config.segment_bytes, repair_log, self.root)
        if config.index_enabled:
            self.index = Index.open(
                self.folder.path("index"), config.index_slots, config.index_entries, repair_log
            )
        self.dispatch = Dispatch(
            self.root, config.queue_file_bytes, config.batch_queue_file_bytes, self.index,
            config.delay_levels_ms, config.lmq,
        )
        self.dispatch.load(topic_kinds(self.root), repair_log)
        self.reader = StoreReader(self.log, self.dispatch, self.index)
        self.cleaner = StoreCleaner(self.reader)
        Checkpoint.reserve(self.folder.path("checkpoint"))
        self.set_checkpoint(Checkpoint.load(self.folder.path("checkpoint")))

    def recover(self, repair_log, check_crc, progress, truncate_at, confirms_later):
        clean, path = not self.folder.was_killed, self.folder.path("checkpoint")
        seal = self.checkpoint.seal(path)
        check_consistency(self.log, self.dispatch, self.checkpoint, seal, repair_log, clean=clean)
        self.dispatch.deletions = deletions(self.root)
        end, newest = recover(
            self.log, self.dispatch, self.checkpoint, repair_log, clean=clean,
            sealed=clean and seal is not None and seal.closed,
            on_unclean=lambda: Checkpoint.revoke(path), check_crc=check_crc,
            progress=progress, truncate_at=-1 if truncate_at is None else truncate_at,
        )
        self.dispatch.deletions = {}
        self.reader.confirmed = end
        if confirms_later:
            self.confirm_offset = ConfirmOffsetFile(self.root, end)
            self.hide(self.confirm_offset.at_open)
        self.newest_ms = newest or self.checkpoint.physic_ms

    def close(self, bint clean=True):
        # type: (...) -> None
        """Flush everything, write the checkpoint, delete `abort` and the prepared segment, unlock.
        Idempotent.

        OSError leaves `abort` in place, as do a broken store and very many lite topics without files.
        `clean=False`: `abort` stays, so that the next open continues this run and its journal.
        """
        if self.closed:
            return
        try:
            if not self.broken:
                if self.stopped is None:
                    self.write()
                self.sync()
                if self.confirm_offset is not None:
                    self.confirm_offset.sync()
                self.close_confirm_offset()  # what follows is no longer for readers
                self.confirm_limit = self.log.written
                self.confirm(self.log.written)
                with self.lock:
                    self.log.drop_unused()
                clean = clean and len(self.dispatch.pending) <= STOP_FILES_MAX
                self.flush_queues(clean)
                if clean:
                    self.folder.mark_stopped()
        finally:
            self.unlock_folder()

    def abandon(self):
        # type: (...) -> None
        """For tests: release files and lock as a killed process would, without a flush; `abort` stays."""
        self.unlock_folder()

    def close_confirm_offset(self):
        if self.confirm_offset is not None:
            self.confirm_offset.close()
            self.confirm_offset = None

    def unlock_folder(self):
        self.closed = True
        self.close_confirm_offset()
        if self.dispatch is not None:
            for queue in self.dispatch.queues.values():
                queue.close()
            self.dispatch.take_changed()      # the list and its queues refer to each other
            self.dispatch.pending.clear()
        if self.index is not None:
            self.index.close()
        if self.log is not None:
            self.log.close()
        self.folder.unlock()

    def __enter__(self):
        # type: (...) -> MessageStore
        return self

    def __exit__(self, *_):
        # type: (*object) -> None
        self.close()

    # ---- appending ----

    def put(self, InnerMessage inner not None, *, int64_t now_ms):
        # type: (...) -> PutResult
        """Stage one message. PutRefused."""
        cdef Message message
        cdef bytes name = self.checked_topic(inner.topic, inner.queue_id)
        cdef int64_t end
        if len(inner.body) > self.max_message_bytes:
            illegal("body")
        if len(inner.properties) > PROPERTIES_BYTES_MAX:
            raise PutRefused(PutStatus.PROPERTIES_SIZE_EXCEEDED, "properties")
        fill(&message, name, inner, now_ms)
        message.body, message.properties = text_of(inner.body), text_of(inner.properties)
        message.flag = inner.flag
        message.prepared_offset = inner.prepared_offset
        queue = self.dispatch.queue_of(name, message.queue_id, True) if is_queued(message.sys_flag) else None
        self.check_fits(record_bytes(&message))
        end = self.stage_any(&message, queue)
        offsets = (message.physical_offset,)
        return PutResult(message.physical_offset, message.queue_offset, end, offsets, now_ms)

    def put_again(
        self,
        int64_t physical_offset,
        bytes source not None,
        dict targets not None,  # type: dict[bytes, tuple[str, int]]
        bytes start not None,
        tuple without not None,  # type: tuple[bytes, ...]
        bytes added not None,
        *,
        int64_t now_ms,
    ):
        # type: (...) -> tuple[str, int, int, int] | None
        """Stage a record of the topic `source` again, with more properties, also one that readers do not see.
        `targets`: topic and queue by how its properties end, from `start` on. Returns its topic and queue,
        the end of the log, and the bytes of its record. None: it has no target, or its properties contain one
        of `without`: it is left to `put`. PutRefused."""
        cdef RecordView view
        cdef Message message
        cdef bytes properties, topic
        cdef Py_ssize_t at
        if not self.reader.find_record(physical_offset, True, &view) or bytes_of(&view.topic) != source:
            return None
        properties = bytes_of(&view.properties)
        at = properties.rfind(start)
        target = None if at < 0 else targets.get(properties[at:])
        if target is None or len(properties) + len(added) > PROPERTIES_BYTES_MAX:
            return None
        for name in without:
            if (<bytes> name) in properties:
                return None
        topic = self.checked_topic(target[0], target[1])
        # copies: the log's files may be unmapped while the record is staged
        body, born_host = bytes_of(&view.body), bytes_of(&view.born_host)
        store_host = bytes_of(&view.store_host)
        properties += added
        message.topic, message.queue_id = text_of(topic), target[1]
        message.body, message.properties = text_of(body), text_of(properties)
        message.born_host, message.store_host = text_of(born_host), text_of(store_host)
        message.flag, message.sys_flag = view.flag, view.sys_flag
        message.born_time, message.store_time = view.born_time, now_ms
        message.reconsume_times, message.prepared_offset = view.reconsume_times, view.prepared_offset
        queue = self.dispatch.queue_of(topic, message.queue_id, True) if is_queued(message.sys_flag) else None
        self.check_fits(record_bytes(&message))
        end = self.stage_any(&message, queue)
        return target[0], target[1], end, end - message.physical_offset

    def put_batch(self, InnerMessage inner not None, *, int64_t now_ms):
        # type: (...) -> PutResult
        """Stage all items of a batch or none, in one segment. PutRefused."""
        cdef Message message
        cdef bytes name = self.checked_topic(inner.topic, inner.queue_id)
        cdef int64_t end = 0, first = -1, total = 0
        if len(inner.body) > self.max_message_bytes or inner.sys_flag & SYS_TRANSACTION:
            illegal("batch")
        items = items_of(inner.body)
        fill(&message, name, inner, now_ms)
        message.prepared_offset = 0
        for _, body, properties in items:
            if self.dispatch.lmq and b"INNER_MULTI_QUEUE_OFFSET" in properties:
                illegal("batch")  # offsets in LMQs are assigned by the broker
            message.body.length, message.properties.length = len(body), len(properties)
            total += record_bytes(&message)
        self.check_fits(total)
        self.log.reserve_contiguous(total)
        queue = self.dispatch.queue_of(name, message.queue_id, True)
        before = self.dispatch.staged_count, self.dispatch.hashes.count, self.log.staging_bytes
        offsets = []
        for flag, body, properties in items:
            message.flag, message.body, message.properties = flag, text_of(body), text_of(properties)
            try:
                end = self.stage_any(&message, queue)
            except BaseException:
                self.rollback_staged(before, queue)
                raise
            first = message.queue_offset if first < 0 else first
            offsets.append(message.physical_offset)
        return PutResult(offsets[0], first, end, tuple(offsets), now_ms)

    cdef int64_t stage(self, Message *message, const Properties *properties, ConsumeQueue queue) except -1:
        """Assign the offsets and encode the record into the staging buffer; returns its end offset.

        `properties`: already scanned, or NULL. PutRefused, MemoryError: nothing is staged.
        """
        message.queue_offset = queue.next_entry if queue is not None else 0
        return self.stage_record(message, properties, queue)

    cdef int64_t stage_any(self, Message *message, ConsumeQueue queue) except -1:
        """As `stage`; the queue may also be a batch queue, or None. PutRefused also for a message alone that
        states how many it is: Apache's broker reads that in every record, and as a number."""
        cdef Properties found
        cdef bint batch = queue is not None and is_batch(queue)
        scan_properties(&message.properties, &found)
        if message.sys_flag & SYS_INNER_BATCH:
            if not batch:
                illegal("sysFlag")
        elif found.inner_count.length:
            illegal("INNER_NUM")
        return self.stage_batch(message, &found, queue) if batch else self.stage(message, &found, queue)

    cdef int64_t stage_batch(
        self, Message *message, const Properties *properties, ConsumeQueue queue
    ) except -1:
        """In a batch queue. An inner batch states where it begins and how many messages it has."""
        cdef int64_t count = 1
        message.queue_offset = next_offset(queue)
        if message.sys_flag & SYS_INNER_BATCH:
            count = inner_number(&message.properties, b"INNER_NUM")
            if not 0 < count <= BATCH_COUNT_MAX:
                illegal("INNER_NUM")
            if inner_number(&message.properties, b"INNER_BASE") != message.queue_offset:
                illegal("INNER_BASE")
        try:
            put_batch(queue.slot_at(queue.next_entry), message.store_time, message.queue_offset, count)
        except OSError as error:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "disk") from error
        return self.stage_record(message, properties, queue)

    cdef int64_t stage_record(
        self, Message *message, const Properties *properties, ConsumeQueue queue
    ) except -1:
        cdef Properties found
        cdef int64_t size = record_bytes(message), physical = 0, staged = self.log.staging_bytes
        cdef uint8_t *to
        if properties is NULL:
            scan_properties(&message.properties, &found)
            properties = &found
        message.crc = body_crc(message.body.at, message.body.length)
        try:
            to = self.log.reserve_record(size, &physical)
            self.dispatch.stage(
                queue, &message.topic, properties, physical, <int32_t> size, message.store_time
            )
        except BaseException as error:  # disk full, no memory, no descriptor: stage nothing
            self.log.staging_bytes = staged
            if isinstance(error, OSError):
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "disk") from error
            raise
        message.physical_offset = physical
        encode_record(message, size, to)
        self.staged_ms = max(self.staged_ms, message.store_time)
        return physical + size

    def queue_folder(self, str topic not None, int64_t queue_id):
        # type: (...) -> str
        queue = self.reader.queue(topic, queue_id)
        return os.path.join(self.dispatch.folder, topic, str(queue_id)) if queue is None else queue.folder

    def next_offset(self, str topic not None, int64_t queue_id):
        # type: (...) -> int
        """Queue offset of the next message; -1 if the queue does not exist yet."""
        queue = self.reader.queue(topic, queue_id)
        return -1 if queue is None else next_offset(queue)

    def queue_ends(self, str topic not None):
        # type: (...) -> dict[int, int]
        """Queue → offset of its next message, of the topic's queues that exist."""
        return {
            queue_id: self.next_offset(topic, queue_id)
            for name, queue_id in self.reader.queues()
            if name == topic
        }

    def records_end(self, str topic not None):
        # type: (...) -> int
        """Physical end of the last record in the topic's queues, also of one that readers do not see yet."""
        cdef ConsumeQueue queue
        cdef bytes name = topic.encode("utf-8", "replace")
        return max(
            [queue.max_physical for (owner, _), queue in self.dispatch.queues.items() if owner == name],
            default=0,
        )

    @property
    def lmq_count(self):
        # type: (...) -> int
        """Number of LMQs: queues whose topic starts with %LMQ%."""
        return self.dispatch.lmq_count

    def checked_topic(self, str topic, int64_t queue_id):
        """Check topic, queue and store; returns the topic in bytes. PutRefused."""
        cdef bytes name = topic.encode("utf-8", "replace")
        if is_refusing(self):
            stopped = self.stopped or self.full or ("store" if self.broken or self.closed else None)
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, stopped or self.write_refusal)
        if not is_file_name(name) or len(name) > TOPIC_BYTES_MAX:
            illegal("topic")
        if len(name) > TOPIC_V1_BYTES_MAX and not name.startswith(b"%RETRY%"):
            illegal("topic")
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            illegal("queueId")
        return name

    def check_fits(self, int64_t size):
        if (
            size > self.max_message_bytes + RECORD_OVER_BODY_BYTES
            or size + RECORD_END_BYTES > self.log.segment_bytes
        ):
            illegal("body")

    def rollback_staged(self, before, ConsumeQueue queue):
        """Remove the staged items of a batch that failed half-way."""
        staged, hashes, staging = before
        queue.next_entry -= self.dispatch.staged_count - staged
        self.dispatch.staged_count, self.dispatch.hashes.count = staged, hashes
        self.log.staging_bytes = staging

    cpdef int64_t write(self) except -1:
        # type: (...) -> int
        """Write all staged messages with one `pwrite`, then queue and index entries; returns the end of
        the log.

        OSError, MemoryError: the staged messages are dropped, all positions are as before, nothing
        half-written is visible. StoreDamaged: likewise, but the write could not be rolled back, and the
        store refuses further puts. If queues or index fail after the log was written, the store stops: the
        next open rebuilds them.
        """
        if self.log.staging_bytes == 0:
            return self.log.written
        if self.broken or self.stopped is not None:
            self.log.drop_staged()
            self.dispatch.drop_staged()
            raise OSError(errno.EIO, self.stopped or "the store accepts no more messages", self.root)
        try:
            self.log.write()
        except (OSError, MemoryError):
            self.dispatch.drop_staged()
            raise
        except StoreDamaged:
            self.dispatch.drop_staged()
            self.broken = True
            raise
        self.newest_ms, self.staged_ms = max(self.newest_ms, self.staged_ms), 0
        try:
            self.dispatch.apply(not self.confirm_later)
        except BaseException:
            self.broken = True
            raise
        if not self.confirm_later:
            self.reader.confirmed = self.log.written
        return self.log.written

    def sync(self):
        # type: (...) -> int
        """fdatasync the log up to `written`; returns that offset. Releases the GIL; one other thread may call
        it. OSError."""
        try:
            return self.log.sync(self.log.written)
        except OSError as error:
            self.mark_suspect(error)
            raise

    def mark_suspect(self, error):
        if error.errno not in EXHAUSTED:  # the disk's content is uncertain, also for the next open
            self.broken = True
            page_cache.mark_suspect(self.root)

    def confirm(self, int64_t physical_offset):
        # type: (...) -> None
        """With `sync_flush` or `confirm_later`: make entries visible whose record ends at or below this
        offset. With `confirm_later`, the file `confirmOffset` keeps what was confirmed: the next open
        hides the rest of the log."""
        physical_offset = min(physical_offset, self.confirm_limit)
        if physical_offset > self.reader.confirmed:
            self.reader.confirmed = min(physical_offset, self.log.written)
            self.dispatch.confirm(self.reader.confirmed)
            if self.confirm_offset is not None:
                self.confirm_offset.note(self.reader.confirmed)

    cdef int hide(self, int64_t physical_offset) except -1:
        """Readers see the log up to here only, until `confirm`."""
        if physical_offset < self.log.written:
            self.reader.confirmed = physical_offset
            self.dispatch.hide(physical_offset)
        return 0

    @contextmanager
    def whole_log_visible(self):
        # type: (...) -> AbstractContextManager[None]
        """A context in which readers see also what was not confirmed when the store was opened: for
        services that restore their state from the log."""
        cdef int64_t confirmed = self.reader.confirmed
        if confirmed >= self.log.written:
            yield
            return
        self.reader.confirmed = self.log.written
        self.dispatch.confirm(self.log.written)
        try:
            yield
        finally:
            self.hide(confirmed)

    def hidden_queues(self):
        # type: (...) -> list[tuple[str, int]]
        """(topic, queue id) of queues with entries that are not confirmed."""
        return self.dispatch.hidden_queues()

    def flush_queues(self, bint seal=False):
        # type: (...) -> int
        """Sync queue files and index, write the checkpoint; returns how many queues had unsynced data. One
        other thread may call it; releases the GIL. OSError."""
        with self.lock:
            newest, written, queues = self.flush_all(seal)
            if self.dispatch.pending.turn:    # the last checkpoint counts until it has ended
                return queues
            index_ms = 0 if self.index is None else self.index.sealed_time
            self.set_checkpoint(Checkpoint(
                newest, newest, index_ms, self.checkpoint.master_flushed, written, max(written - 1, 0)
            ))
            current = fingerprint(self.dispatch, shape=seal)
            is_sealed = seal and self.log.refused == 0
            self.checkpoint.save(self.folder.path("checkpoint"), current, closed=is_sealed)
        return queues

    def set_checkpoint(self, checkpoint):
        """Replace the checkpoint; the cleaner deletes nothing above its confirm offset."""
        self.checkpoint = checkpoint
        self.cleaner.flushed_queues = checkpoint.confirm_offset

    def fsync_after_kill(self):
        """Sync, once, what a killed process may have left in the page cache only. OSError."""
        if self.unsettled:
            page_cache.fsync_store(self.root, self.log.folder)
            self.unsettled = False

    def flush_all(self, bint whole):
        """Sync log, queues and index: (store time, offset) up to which all is durable, for the checkpoint,
        and how many queues had unsynced data. Files of lite topics are made for a while, `whole`: all of
        them; if some of the turn are left, the numbers do not count. OSError."""
        newest, written = self.newest_ms, self.log.written
        if self.dispatch.pending.begin_turn(whole):
            self.turn_began = newest, written
        if written > self.log.flushed:
            self.sync()
        self.dispatch.pending.make(INFINITY if whole else time.monotonic() + MAKE_FILES_S)
        try:
            self.fsync_after_kill()
            queues = self.dispatch.sync()
            if self.confirm_offset is not None:
                self.confirm_offset.sync()
            if self.index is not None:
                self.index.sync()
        except OSError as error:
            self.mark_suspect(error)
            raise
        return *self.turn_began, queues

    def prepare(self):
        # type: (...) -> None
        """Call before a sync: create the next segment if the active one is half full, preallocate blocks for
        the writes during the sync. One other thread may call it; releases the GIL. OSError: the segment was
        not created."""
        self.log.prepare()

    @property
    def staged_bytes(self):
        # type: (...) -> int
        return self.log.staging_bytes

    @property
    def written(self):
        # type: (...) -> int
        return self.log.written

    @property
    def flushed(self):
        # type: (...) -> int
        return self.log.flushed

    @property
    def min_physical(self):
        # type: (...) -> int
        return self.log.min_offset

    @property
    def mappings(self):
        # type: (...) -> Mappings
        """The mapped queue files."""
        return self.dispatch.mappings

    def log_bytes(self, int64_t physical_offset, int64_t at_most):
        # type: (...) -> memoryview | None
        """The log's bytes from an offset on, read only and not copied: `at_most`, to the end of their
        file, and to `written`. None: there are none. Release it soon: its file stays mapped meanwhile,
        also if it is deleted. OSError."""
        cdef Segment segment = self.log.segment_at(physical_offset)
        cdef int64_t at, length
        if segment is None:
            return None
        at = physical_offset - segment.base
        length = min(at_most, segment.size - at, self.log.written - physical_offset)
        return memoryview(segment)[at:at + length] if length > 0 else None

    @property
    def run(self):
        # type: (...) -> str
        """Name of this run: the same after a kill, a new one after a clean stop or a run of Apache's
        broker."""
        return self.folder.run

    @property
    def writable(self):
        # type: (...) -> bool
        """False after an I/O error that leaves the disk's content uncertain: puts are refused, reads still
        work."""
        return not self.broken and not self.closed

    def drop_topic(self, str topic not None, int64_t queue_id=-1):
        # type: (...) -> int
        """Delete the consume queues of a topic, or one of them; returns how many. The log keeps the
        records."""
        self.write()
        return self.dispatch.forget(topic.encode("utf-8", "replace"), queue_id)

    def has_batch_queues(self, str topic not None):
        # type: (...) -> bool
        """Whether new queues of the topic are batch queues."""
        return topic.encode("utf-8", "replace") in self.dispatch.batch_topics

    def set_batch_topic(self, str topic not None, bint batch):
        # type: (...) -> None
        """Whether new queues of the topic are batch queues (Apache: queue.type=BatchCQ). Plain queues that it
        has, as when a slave gets messages before the topic, become batch queues. OSError."""
        cdef bytes name = topic.encode("utf-8", "replace")
        cdef ConsumeQueue made
        if not batch or name in self.dispatch.batch_topics:
            if not batch:
                self.dispatch.batch_topics.discard(name)
            return
        self.write()
        self.dispatch.batch_topics.add(name)
        plain = [(key, queue) for key, queue in self.dispatch.queues.items() if key[0] == name]
        if not plain:
            return
        queues = {}
        try:
            for key, queue in plain:
                made = queues[key] = self.dispatch.new_queue(name, key[1])
                copy_entries(self.log, queue, made)
        except BaseException:
            self.dispatch.batch_topics.discard(name)
            raise
        self.dispatch.forget(name)
        self.dispatch.queues.update(queues)
        self.dispatch.count_again()
        if self.confirm_later:
            self.dispatch.hide(self.reader.confirmed)

    def drop_lmq(self, str name not None, int64_t end):
        # type: (...) -> bool
        """Delete an LMQ whose last record ends there, and which gets no other one now; False: it is not
        deleted. After a power cut it may exist again."""
        cdef bytes topic = name.encode("utf-8", "replace")
        cdef ConsumeQueue queue = self.dispatch.queue_of(topic, 0, False)
        if queue is None or queue.max_physical != end or queue.next_entry != queue.end_entry:
            return False
        self.dispatch.forget(topic, 0, False)
        return True


cdef extern from "unistd.h" nogil:
    int syncfs(int fd)


cdef bint is_queued(int32_t sys_flag):
    return sys_flag & SYS_TRANSACTION != SYS_PREPARED and sys_flag & SYS_TRANSACTION != SYS_ROLLBACK


cdef int fill(Message *message, bytes topic, InnerMessage inner, int64_t now_ms) except -1:
    """Set the fields that all records of a put share. ValueError: a host has a wrong length."""
    if len(inner.born_host) not in (8, 20) or len(inner.store_host) not in (8, 20):
        raise ValueError("a host must have 4 or 16 address bytes and 4 bytes of port")
    message.topic = text_of(topic)
    message.born_host, message.store_host = text_of(inner.born_host), text_of(inner.store_host)
    message.queue_id = <int32_t> inner.queue_id
    message.sys_flag = inner.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6)
    if len(inner.born_host) == 20:
        message.sys_flag |= SYS_BORN_V6
    if len(inner.store_host) == 20:
        message.sys_flag |= SYS_STORE_V6
    message.born_time, message.store_time = inner.born_timestamp, now_ms
    message.reconsume_times = inner.reconsume_times
    return 0


cdef int64_t EVERYTHING = (1 << 62) - 1       # an offset beyond every record


cdef MessageStore open_once(object root, object config, object progress):
    cdef MessageStore store = MessageStore.__new__(MessageStore)
    store.root = os.path.abspath(os.fspath(root))
    store.folder = StoreFolder(store.root)
    store.confirm_limit = EVERYTHING
    try:
        repair_log = RepairLog(store.root)
        store.load(repair_log, config)
        store.max_message_bytes = config.max_message_bytes
        store.sync_flush = config.sync_flush
        store.confirm_later = config.sync_flush or config.confirm_later
        store.lock = threading.Lock()
        store.recover(repair_log, config.check_crc, progress, config.truncate_at, config.confirm_later)
        if store.sync_flush:
            store.fsync_after_kill()
        store.findings = tuple(repair_log.lines)
        store.folder.mark_running()
    except BaseException:
        store.unlock_folder()
        raise
    return store


cdef int sync_file_system(str folder) except -1:
    """Write everything of the folder's file system to the disk. Errors show up later."""
    cdef int number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with nogil:
        syncfs(number)
    os.close(number)
    return 0
