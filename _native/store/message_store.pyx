"""MessageStore: an open store folder (see store.pxd). Knows no socket, no asyncio, no clock."""

import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.store_cleaner cimport StoreCleaner
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.base.hash cimport body_crc
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.files.layout cimport (
    PROPERTIES_BYTES_MAX, RECORD_END_BYTES, RECORD_OVER_BODY_BYTES, SYS_BORN_V6, SYS_PREPARED, SYS_ROLLBACK, SYS_STORE_V6,
    SYS_TRANSACTION, TOPIC_BYTES_MAX, TOPIC_V1_BYTES_MAX,
)
from firearrow._native.store.store_reader cimport StoreReader
from firearrow._native.store.log.record cimport Message, Properties, Text, encode_record, record_bytes, scan_properties

from firearrow._native.store.files import page_cache
from firearrow._native.store.log.batch import items_of
from firearrow._native.store.log.checkpoint import Checkpoint
from firearrow._native.store.log.commit_log import CommitLog as Log
from firearrow._native.store.log.dispatcher import is_file_name
from firearrow._native.store.recovery.consistency import check_consistency, fingerprint
from firearrow._native.store.files.errors import StoreDamaged, StoreError, StoreForeign, StoreLocked
from firearrow._native.store.get_message import GetStatus, GetResult
from firearrow._native.store.store_folder import StoreFolder
from firearrow._native.store.log.key_index import KeyIndex as Index
from firearrow._native.store.files.directory_sync import delete_incomplete_files
from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.results import PutResult, PutRefused, PutStatus, QueueEntry
from firearrow._native.store.recovery.recovery import recover

__all__ = [
    "GetStatus", "GetResult", "InnerMessage", "MessageStore", "PutResult", "PutRefused", "PutStatus", "QueueEntry", "StoreConfig",
    "StoreDamaged", "StoreError", "StoreForeign", "StoreLocked",
]

QUEUE_ID_MAX = 65535
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)   # of the process; says nothing of the disk
DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    commitlog_path: str | None = None
    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    max_message_bytes: int = 4 << 20
    check_crc: bool = True
    sync_flush: bool = False
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    lmq: bool = False


@cython.final
@cython.dataclasses.dataclass
cdef class InnerMessage:
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


cdef inline Text text_of(bytes data):
    return Text(at=<const uint8_t *> PyBytes_AS_STRING(data), length=len(data))


cdef int illegal(str field) except -1:
    raise PutRefused(PutStatus.MESSAGE_ILLEGAL, field)


cdef class MessageStore:
    # ---- opening and closing ----

    @staticmethod
    def open(root, config=StoreConfig(), *, progress=None):
        cdef MessageStore store = MessageStore.__new__(MessageStore)
        store.root = os.path.abspath(os.fspath(root))
        store.folder = StoreFolder(store.root)
        try:
            repair_log = RepairLog(store.root)
            store.load(repair_log, config)
            store.max_message_bytes = config.max_message_bytes
            store.sync_flush = config.sync_flush
            store.lock = threading.Lock()
            store.recover(repair_log, config.check_crc, progress)
            if store.sync_flush:
                store.fsync_store()
            store.findings = tuple(repair_log.lines)
            store.folder.mark_running()
        except BaseException:
            store.unlock_folder()
            raise
        return store

    def load(self, repair_log, config):
        log_folder = config.commitlog_path or self.folder.path("commitlog")
        if self.folder.was_killed:
            self.unsettled = True
            if page_cache.is_suspect(self.root):
                page_cache.drop_page_cache(self.root, log_folder, repair_log)
            delete_incomplete_files(self.folder.path("consumequeue"), self.folder.path("index"))
        self.log = Log.open(log_folder, config.segment_bytes, repair_log, self.root)
        if config.index_enabled:
            self.index = Index.open(self.folder.path("index"), config.index_slots, config.index_entries, repair_log)
        self.dispatch = Dispatch(
            self.folder.path("consumequeue"), config.queue_file_bytes, self.index, config.delay_levels_ms, config.lmq
        )
        self.dispatch.load(repair_log)
        self.reader = StoreReader(self.log, self.dispatch, self.index)
        self.cleaner = StoreCleaner(self.reader)
        self.set_checkpoint(Checkpoint.load(self.folder.path("checkpoint")))

    def recover(self, repair_log, check_crc, progress):
        clean, path = not self.folder.was_killed, self.folder.path("checkpoint")
        seal = self.checkpoint.seal(path)
        check_consistency(self.log, self.dispatch, self.checkpoint, seal, repair_log, clean=clean)
        end, newest = recover(
            self.log, self.dispatch, self.checkpoint, repair_log, clean=clean, sealed=clean and seal is not None and seal.closed,
            on_unclean=lambda: Checkpoint().save(path, b"", closed=False), check_crc=check_crc, progress=progress,
        )
        self.reader.confirmed = end
        self.newest_ms = newest or self.checkpoint.physic_ms

    def close(self, bint clean=True):
        """See store.pyi. OSError leaves `abort` in place, and so does a store that took no more."""
        if self.closed:
            return
        try:
            if not self.broken:
                self.write()
                self.sync()
                self.confirm(self.log.written)
                with self.lock:
                    self.log.drop_unused()
                self.flush_queues(clean)
                if clean:
                    self.folder.mark_stopped()
        finally:
            self.unlock_folder()

    def abandon(self):
        self.unlock_folder()

    def unlock_folder(self):
        self.closed = True
        if self.dispatch is not None:
            for queue in self.dispatch.queues.values():
                queue.close()
        if self.index is not None:
            self.index.close()
        if self.log is not None:
            self.log.close()
        self.folder.unlock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- appending ----

    def put(self, InnerMessage given not None, *, int64_t now_ms):
        cdef Message message
        cdef bytes name = self.checked_topic(given.topic, given.queue_id)
        cdef int64_t end
        if len(given.body) > self.max_message_bytes:
            illegal("body")
        if len(given.properties) > PROPERTIES_BYTES_MAX:
            raise PutRefused(PutStatus.PROPERTIES_SIZE_EXCEEDED, "properties")
        fill(&message, name, given, now_ms)
        message.body, message.properties, message.flag = text_of(given.body), text_of(given.properties), given.flag
        message.prepared_offset = given.prepared_offset
        queue = self.dispatch.queue_of(name, message.queue_id, True) if is_queued(message.sys_flag) else None
        self.check_fits(record_bytes(&message))
        end = self.stage(&message, NULL, queue)
        return PutResult(message.physical_offset, message.queue_offset, end, (message.physical_offset,), now_ms)

    def put_batch(self, InnerMessage given not None, *, int64_t now_ms):
        cdef Message message
        cdef bytes name = self.checked_topic(given.topic, given.queue_id)
        cdef int64_t end = 0, first = -1, total = 0
        if len(given.body) > self.max_message_bytes or given.sys_flag & SYS_TRANSACTION:
            illegal("batch")
        parts = items_of(given.body)
        fill(&message, name, given, now_ms)
        message.prepared_offset = 0
        for flag, body, properties in parts:
            if self.dispatch.lmq and b"INNER_MULTI_QUEUE_OFFSET" in properties:
                illegal("batch")  # places in light queues are the broker's to give
            message.body.length, message.properties.length = len(body), len(properties)
            total += record_bytes(&message)
        self.check_fits(total)
        self.log.reserve_contiguous(total)
        queue = self.dispatch.queue_of(name, message.queue_id, True)
        mark_suspect = self.dispatch.staged_count, self.dispatch.hashes.count, self.log.staging_bytes
        places = []
        for flag, body, properties in parts:
            message.flag, message.body, message.properties = flag, text_of(body), text_of(properties)
            try:
                end = self.stage(&message, NULL, queue)
            except BaseException:
                self.rollback_staged(mark_suspect, queue)
                raise
            first = message.queue_offset if first < 0 else first
            places.append(message.physical_offset)
        return PutResult(places[0], first, end, tuple(places), now_ms)

    cdef int64_t stage(self, Message *message, const Properties *properties, ConsumeQueue queue) except -1:
        """Promise the places, encode the record into the staging; the offset behind it. `properties`: scanned, or NULL."""
        cdef Properties found
        cdef int64_t size = record_bytes(message), physical = 0, staged = self.log.staging_bytes
        cdef uint8_t *to
        if properties is NULL:
            scan_properties(&message.properties, &found)
            properties = &found
        message.queue_offset = queue.next_entry if queue is not None else 0
        message.crc = body_crc(message.body.at, message.body.length)
        try:
            to = self.log.place(size, &physical)
            self.dispatch.stage(queue, &message.topic, properties, physical, <int32_t> size, message.store_time)
        except BaseException as error:  # nothing of it stays, whatever was missing: room, memory, a descriptor
            self.log.staging_bytes = staged
            if isinstance(error, OSError):
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "disk") from None
            raise
        message.physical_offset = physical
        encode_record(message, size, to)
        self.staged_ms = max(self.staged_ms, message.store_time)
        return physical + size

    def next_offset(self, str topic not None, int64_t queue_id):
        queue = self.reader.queue(topic, queue_id)
        return -1 if queue is None else queue.next_entry

    @property
    def light_queues(self):
        return self.dispatch.lmq_count

    def checked_topic(self, str topic, int64_t queue_id):
        """The topic's bytes. PutRefused."""
        cdef bytes name = topic.encode("utf-8", "replace")
        if self.broken or self.closed or self.full is not None:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.full or "store")
        if not is_file_name(name) or len(name) > TOPIC_BYTES_MAX:
            illegal("topic")
        if len(name) > TOPIC_V1_BYTES_MAX and not name.startswith(b"%RETRY%"):
            illegal("topic")
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            illegal("queueId")
        return name

    def check_fits(self, int64_t size):
        if size > self.max_message_bytes + RECORD_OVER_BODY_BYTES or size + RECORD_END_BYTES > self.log.segment_bytes:
            illegal("body")

    def rollback_staged(self, mark_suspect, ConsumeQueue queue):
        """A batch that failed half way leaves nothing staged."""
        staged, hashes, staging = mark_suspect
        queue.next_entry -= self.dispatch.staged_count - staged
        self.dispatch.staged_count, self.dispatch.hashes.count, self.log.staging_bytes = staged, hashes, staging

    cpdef int64_t write(self) except -1:
        """See store.pyi. A queue or index that fails behind the log's write stops the store: the next open rebuilds it."""
        if self.log.staging_bytes == 0:
            return self.log.written
        if self.broken:
            self.log.drop_staged()
            self.dispatch.drop_staged()
            raise OSError(errno.EIO, "the store has stopped taking messages", self.root)
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
            self.dispatch.apply(not self.sync_flush)
        except BaseException:
            self.broken = True
            raise
        if not self.sync_flush:
            self.reader.confirmed = self.log.written
        return self.log.written

    def sync(self):
        try:
            return self.log.sync(self.log.written)
        except OSError as error:
            self.doubt_disk(error)
            raise

    def doubt_disk(self, error):
        if error.errno not in EXHAUSTED:  # what the disk holds is in doubt, also to the next open
            self.broken = True
            page_cache.mark_suspect(self.root)

    def confirm(self, int64_t physical_offset):
        if physical_offset > self.reader.confirmed:
            self.reader.confirmed = min(physical_offset, self.log.written)
            self.dispatch.confirm(self.reader.confirmed)

    def flush_queues(self, bint seal=False):
        with self.lock:
            newest, written, queues = self.flush_all()
            self.set_checkpoint(Checkpoint(
                newest, newest, 0 if self.index is None else self.index.sealed_time, self.checkpoint.master_flushed, written,
                max(written - 1, 0),
            ))
            left = fingerprint(self.dispatch, shape=seal)
            self.checkpoint.save(self.folder.path("checkpoint"), left, closed=seal and self.log.refused == 0)
        return queues

    def set_checkpoint(self, checkpoint):
        """The cleaner deletes nothing above the offset that the checkpoint confirms."""
        self.checkpoint = checkpoint
        self.cleaner.flushed_queues = checkpoint.confirm_offset

    def fsync_store(self):
        if self.unsettled:
            page_cache.fsync_store(self.root, self.log.folder)
            self.unsettled = False

    def flush_all(self):
        """Up to which time and offset all is on the disk: the checkpoint never says more. How many queues it took."""
        newest, written = self.newest_ms, self.log.written
        if written > self.log.flushed:
            self.sync()
        try:
            self.fsync_store()
            queues = self.dispatch.sync()
            if self.index is not None:
                self.index.sync()
        except OSError as error:
            self.doubt_disk(error)
            raise
        return newest, written, queues

    def prepare(self):
        self.log.prepare()

    @property
    def staged_bytes(self):
        return self.log.staging_bytes

    @property
    def written(self):
        return self.log.written

    @property
    def flushed(self):
        return self.log.flushed

    @property
    def min_physical(self):
        return self.log.min_offset

    @property
    def mappings(self):
        return self.dispatch.mappings

    @property
    def run(self):
        return self.folder.run

    @property
    def writable(self):
        return not self.broken and not self.closed

    def drop_topic(self, str topic not None):
        self.write()
        return self.dispatch.forget(topic.encode("utf-8", "replace"))


cdef bint is_queued(int32_t sys_flag):
    return sys_flag & SYS_TRANSACTION != SYS_PREPARED and sys_flag & SYS_TRANSACTION != SYS_ROLLBACK


cdef int fill(Message *message, bytes topic, InnerMessage given, int64_t now_ms) except -1:
    """What all records of a put share. Hosts of a wrong length are the caller's mistake."""
    if len(given.born_host) not in (8, 20) or len(given.store_host) not in (8, 20):
        raise ValueError("a host is 4 or 16 address bytes and 4 bytes of port")
    message.topic, message.born_host, message.store_host = text_of(topic), text_of(given.born_host), text_of(given.store_host)
    message.queue_id = <int32_t> given.queue_id
    message.sys_flag = given.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6)
    if len(given.born_host) == 20:
        message.sys_flag |= SYS_BORN_V6
    if len(given.store_host) == 20:
        message.sys_flag |= SYS_STORE_V6
    message.born_time, message.store_time = given.born_timestamp, now_ms
    message.reconsume_times = given.reconsume_times
    return 0
