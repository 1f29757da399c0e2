"""StoreReader: read access to an open store (see store_reader.pxd)."""

import os
from itertools import islice

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.batch_consume_queue cimport (
    base_at, count_at, entry_by_time, entry_with, first_offset, is_batch, offset_at, queue_store_time,
    visible_offset,
)
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch, multi_entries
from firearrow._native.store.get_message cimport get_message
from firearrow._native.base.hash cimport index_hash
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.files.layout cimport ENTRY_AT_SIZE, ENTRY_BYTES, KEY_SEPARATOR
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.log.queue_check cimport matches
from firearrow._native.store.log.record cimport (
    RECORD_OK, Properties, RecordView, Text, property_pairs, scan_properties,
)
from firearrow._native.store.recovery.entry_repair cimport repair_entry

from firearrow._native.base.hash import java_hash
from firearrow._native.store.compaction import get as get_compacted
from firearrow._native.store.log.results import QueueEntry

# type: from firearrow._native.store.log.compaction_log import CompactionLog

QUEUE_ID_MAX = 65535
COMPARED_MAX = 65536  # type: int
LMQS_MAX = 256                    # of one record that are looked up
LMQ_PREFIX = b"%LMQ%"


def memory_bytes(int percent=40):
    # type: (...) -> int
    """`percent` of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * percent // 100


@cython.final
cdef class StoreReader:
    """Read access to an open store. Available as `store.reader`; the appender's thread."""

    def __init__(self, CommitLog log not None, Dispatch dispatch not None, KeyIndex index):
        self.log, self.dispatch, self.index = log, dispatch, index
        self.compacted = {}
        self.set_limits(
            in_memory_bytes=memory_bytes(), bytes_in_memory=262144, count_in_memory=32, bytes_on_disk=65536,
            count_on_disk=8, filter_bytes=16000,
        )

    def set_limits(
        self, *, int64_t in_memory_bytes, int64_t bytes_in_memory, int64_t count_in_memory,
        int64_t bytes_on_disk, int64_t count_on_disk, int64_t filter_bytes,
    ):
        # type: (...) -> None
        """Limits of one `get` (Apache's maxTransfer… and maxFilterMessageSize). Records within
        `in_memory_bytes` of the end of the log count as in memory."""
        self.limits.in_memory_bytes = in_memory_bytes
        self.limits.bytes_in_memory, self.limits.count_in_memory = bytes_in_memory, count_in_memory
        self.limits.bytes_on_disk, self.limits.count_on_disk = bytes_on_disk, count_on_disk
        self.limits.filter_bytes = filter_bytes

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id):
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        return self.dispatch.queue_of(topic.encode("utf-8", "replace"), <int32_t> queue_id, False)

    cdef object compaction_log(self, str topic, int64_t queue_id):
        """The queue's log if it has messages, else None."""
        if not self.compacted:
            return None
        log = self.compacted.get((topic, queue_id))
        return log if log is not None and log.end else None

    cdef bint is_trimmed(self, const RecordView *view) except -1:
        """Whether the record is one that its queue was trimmed of."""
        if not self.dispatch.trims:
            return False
        topic = PyBytes_FromStringAndSize(<const char *> view.topic.at, view.topic.length)
        return view.physical_offset < <int64_t> self.dispatch.trims.get((topic, view.queue_id), 0)

    def queue_ids(self, str topic not None):
        # type: (...) -> list[int]
        """The queues of the topic, in order."""
        cdef bytes name = topic.encode("utf-8", "replace")
        return sorted([number for queue_topic, number in self.dispatch.queues if queue_topic == name])

    def queues(self):
        # type: (...) -> list[tuple[str, int]]
        return [(os.fsdecode(topic), number) for topic, number in self.dispatch.queues]

    def last_ends(self, str prefix not None):
        # type: (...) -> Iterator[tuple[str, int]]
        """(topic, physical end of the last record) of each queue of now whose topic begins so. It may go on
        after changes: the end of a queue is that of when it is its turn, 0 if it is deleted."""
        cdef ConsumeQueue queue
        for queue in self.dispatch.all_queues():
            if queue.topic.startswith(prefix):
                yield queue.topic, queue.max_physical

    def get(
        self,
        str topic not None,
        int64_t queue_id,
        int64_t queue_offset,
        int64_t max_count,
        int64_t max_bytes=134217728,
        tags=None,  # type: frozenset[int] | None
        accept=None,  # type: Callable[[memoryview], bool] | None
    ):
        # type: (...) -> GetResult
        """Apache's getMessage. `tags`: tags codes that match, None for all; `accept` is called with each
        record that passes them (SQL filters). A queue that does not exist counts as empty and is not created.
        Of a compaction topic the next messages are returned where those of an offset are compacted. OSError.
        """
        log, queue = self.compaction_log(topic, queue_id), self.queue(topic, queue_id)
        if log is not None and queue_offset < log.end:
            limits = (
                self.limits.bytes_in_memory, self.limits.count_in_memory,
                self.limits.filter_bytes // ENTRY_BYTES,
            )
            high = self.max_offset(topic, queue_id)
            return get_compacted(log, queue_offset, high, max_count, max_bytes, limits, tags, accept)
        got = get_message(self.log, queue, &self.limits, queue_offset, max_count, max_bytes, tags, accept)
        if log is not None:
            got.min_offset = log.first
        return got

    def min_offset(self, str topic not None, int64_t queue_id):
        # type: (...) -> int
        queue, log = self.queue(topic, queue_id), self.compaction_log(topic, queue_id)
        if log is not None:
            return log.first
        return 0 if queue is None else first_offset(queue)

    def max_offset(self, str topic not None, int64_t queue_id):
        # type: (...) -> int
        """Exclusive; confirmed entries only. 0 for an unknown queue."""
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else visible_offset(queue)

    def store_time(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        # type: (...) -> int
        """Store time (ms) of a message, -1 if it does not exist."""
        queue = self.queue(topic, queue_id)
        return -1 if queue is None else queue_store_time(self.log, queue, queue_offset)

    def offset_by_time(self, str topic not None, int64_t queue_id, int64_t timestamp_ms, bint upper=False):
        # type: (...) -> int
        """Queue offset of the first message stored at or after a time; `upper`: of the last one at or before
        it."""
        queue, log = self.queue(topic, queue_id), self.compaction_log(topic, queue_id)
        if log is not None and (found := log.offset_by_time(timestamp_ms, upper)) >= 0:
            return found
        if queue is not None and is_batch(queue):
            return offset_at(queue, entry_by_time(queue, timestamp_ms, upper))
        return 0 if queue is None else queue.offset_by_time(self.log, timestamp_ms, upper)

    def batch_start(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        # type: (...) -> int
        """Where the batch begins that has the message, which is deleted as a whole; else the offset."""
        queue = self.queue(topic, queue_id)
        if queue is None or not is_batch(queue) or queue_offset <= first_offset(queue):
            return queue_offset
        return min(queue_offset, offset_at(queue, entry_with(queue, queue_offset)))

    def messages_at(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        # type: (...) -> int
        """How many messages the entry of a message is of: several in an inner batch. 0: it does not exist."""
        queue = self.queue(topic, queue_id)
        if queue is None or not first_offset(queue) <= queue_offset < visible_offset(queue):
            return 0
        return count_at(queue, entry_with(queue, queue_offset)) if is_batch(queue) else 1

    def entries(self, str topic not None, int64_t queue_id, int64_t queue_offset, int64_t count):
        # type: (...) -> list[QueueEntry]
        """Entries of up to `count` messages; in a batch queue the entry of a batch comes once for each of its
        messages from `queue_offset` on."""
        queue = self.queue(topic, queue_id)
        if queue is not None and is_batch(queue):
            return batch_entries(queue, queue_offset, count)
        return [] if queue is None else [QueueEntry(*entry) for entry in queue.entries(queue_offset, count)]

    def record_at(self, int64_t physical_offset, *, bint unconfirmed=False):
        # type: (...) -> bytes | None
        """The record that starts at an offset, which may come from outside; None if no queue's entry
        points to one there, also if its topic was deleted, or its queue was trimmed of it. `unconfirmed`:
        also one that readers do not see yet."""
        cdef RecordView view
        cdef int64_t available = 0
        cdef const uint8_t *at
        if not self.find_record(physical_offset, unconfirmed, &view):
            return None
        at = self.log.bytes_at(physical_offset, &available)
        return (<const char *> at)[:view.size]

    def message_at(self, int64_t physical_offset, *, bint unconfirmed=False):
        # type: (...) -> tuple[str, int, dict[str, str], bytes] | None
        """Of the record that `record_at` returns: topic, store time in ms, properties, and body as stored."""
        cdef RecordView view
        if not self.find_record(physical_offset, unconfirmed, &view):
            return None
        return (
            PyUnicode_DecodeUTF8(<const char *> view.topic.at, view.topic.length, "replace"),
            view.store_time,
            property_pairs(view.properties.at, view.properties.length),
            (<const char *> view.body.at)[:view.body.length],
        )

    cdef bint find_record(self, int64_t physical_offset, bint unconfirmed, RecordView *view) except -1:
        """Whether there is one, and may be seen."""
        cdef int64_t end = self.log.written if unconfirmed else self.confirmed
        if not self.log.min_offset <= physical_offset < end:
            return False
        if (
            self.log.look(physical_offset, False, view) != RECORD_OK
            or view.physical_offset != physical_offset
        ):
            return False
        return physical_offset + view.size <= end and not self.is_trimmed(view) and self.has_entry(view)

    cdef bint has_entry(self, const RecordView *view) except -1:
        """Whether an entry of its queue points to the record: bytes in a body that look like one have none.
        If its topic was deleted, an LMQ's entry suffices."""
        cdef Properties properties
        cdef bytes topic = PyBytes_FromStringAndSize(<const char *> view.topic.at, view.topic.length)
        if self.points_to(topic, view.queue_id, view.queue_offset, view):
            return True
        scan_properties(&view.properties, &properties)
        if properties.multi_offsets.length:
            for name, entry in islice(multi_entries(&properties), LMQS_MAX):
                if name.startswith(LMQ_PREFIX) and self.points_to(name, 0, entry, view):
                    return True
        return False

    cdef bint points_to(
        self, bytes topic, int32_t queue_id, int64_t queue_offset, const RecordView *view
    ) except -1:
        """Whether the queue's entry has the record's offset and size. A damaged entry is repaired before."""
        cdef uint8_t entry[ENTRY_BYTES]
        cdef ConsumeQueue queue = self.dispatch.queue_of(topic, queue_id, False)
        cdef int32_t size = 0
        if queue is None:
            return False
        queue_offset = entry_with(queue, queue_offset)
        if not queue.look(queue_offset, entry):
            return False
        if get_i64(entry) == view.physical_offset and get_i32(entry + ENTRY_AT_SIZE) == view.size:
            return True
        if matches(self.log, queue, queue_offset, True) or repair_entry(
            self.log, queue, queue_offset, &size
        ) is NULL:
            return False
        queue.look(queue_offset, entry)
        return get_i64(entry) == view.physical_offset and size == view.size

    def compacted_record(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        # type: (...) -> bytes | None
        """A message of a compaction topic that is in its compaction log. OSError."""
        log = self.compaction_log(topic, queue_id)
        return None if log is None else log.record(queue_offset)

    def begins_record(self, int64_t physical_offset):
        # type: (...) -> bool | None
        """Whether a record begins at an offset: True if a queue's entry points to it. None: what looks
        like one there has no entry, as in a body, or of a deleted topic; only a walk to it by
        `skip_records` can report."""
        cdef RecordView view
        if self.log.segment_at(physical_offset) is None or physical_offset >= self.log.written:
            return False
        if self.log.look(physical_offset, False, &view) != RECORD_OK:
            return False
        if view.physical_offset != physical_offset:
            return False
        return True if self.has_entry(&view) else None

    def skip_records(self, int64_t physical_offset, int64_t until, int64_t max_bytes):
        # type: (...) -> int
        """Walk from a record's start over whole records to `until`, in one file of the log: from the
        file's first record if that comes later. Where the walk ended: at the first record from `until` on,
        or at least `max_bytes` further, or before something that is not a record. -1: the log does not have
        `until`."""
        cdef RecordView view
        cdef Segment segment = self.log.segment_at(until)
        cdef int64_t at, stop
        if segment is None or until > self.log.written:
            return -1
        at = max(physical_offset, segment.base, self.log.min_offset)
        stop = min(until, at + max_bytes)
        while at < stop:
            if self.log.look(at, False, &view) != RECORD_OK or view.physical_offset != at:
                break
            at += view.size
        return at

    def query(
        self, str topic not None, str key not None, int64_t max_count, int64_t begin_ms, int64_t end_ms,
        bint tag=False, *, bint unconfirmed=False,
    ):
        # type: (...) -> tuple[list[bytes], int, int]
        """(the newest `max_count` records with the key, oldest first; the index's last store time; its last
        physical offset). At most COMPARED_MAX records of the key's hash are compared, the newest ones.
        `unconfirmed`: also records that readers do not see yet."""
        if self.index is None:
            return [], 0, 0
        cdef int64_t end = self.log.written if unconfirmed else self.confirmed
        cdef bytes name = topic.encode("utf-8", "replace"), wanted = key.encode("utf-8", "replace")
        cdef int64_t before = -1
        last_ms, last_physical = self.index.last
        text = f"{topic}#T#{key}" if tag else f"{topic}#{key}"
        offsets = self.index.offsets(index_hash(java_hash(text)), begin_ms, end_ms)
        found = []
        for physical in islice(offsets, COMPARED_MAX if max_count > 0 else 0):
            if physical == before:
                continue  # another key of the same record
            before = physical
            if self.log.min_offset <= physical < end and has_key(self.log, physical, name, wanted, tag):
                record = self.record_at(physical, unconfirmed=unconfirmed)
                if record is not None:
                    found.append(record)
                    if len(found) == max_count:
                        break
        found.reverse()
        return found, last_ms, last_physical

    def drain_entry_repairs(self):
        # type: (...) -> list[str]
        """A line for each wrong queue entry that readers found since the last call. Any thread."""
        return self.dispatch.entry_repairs.drain()

    def is_near_end(self, int64_t physical_offset):
        # type: (...) -> bool
        """Whether it is within `in_memory_bytes` of the end of the log."""
        return self.log.written - physical_offset <= self.limits.in_memory_bytes

    def earliest_store_time(self):
        # type: (...) -> int
        cdef RecordView view
        if not self.log.bases or self.log.look(self.log.min_offset, False, &view) != RECORD_OK:
            return -1
        return view.store_time


cdef list batch_entries(ConsumeQueue queue, int64_t offset, int64_t count):
    cdef int64_t entry = entry_with(queue, offset), end
    found = []
    while queue.min_entry <= entry < queue.visible and len(found) < count:
        raw = queue.entries(entry, 1)
        if not raw or base_at(queue, entry) > offset + len(found):
            break
        end = base_at(queue, entry) + count_at(queue, entry)
        found += [QueueEntry(*raw[0])] * min(end - offset - len(found), count - len(found))
        entry += 1
    return found


cdef bint has_key(CommitLog log, int64_t physical_offset, bytes topic, bytes key, bint tag) except -1:
    """Whether the record belongs to the topic and has the key (unique key included) or, with `tag`, the tag:
    others may have the same hash."""
    cdef RecordView view
    cdef Properties properties
    cdef const uint8_t *at
    cdef const uint8_t *stop
    cdef const uint8_t *end
    if log.look(physical_offset, False, &view) != RECORD_OK or not is_text(&view.topic, topic):
        return False
    scan_properties(&view.properties, &properties)
    if tag:
        return is_text(&properties.tags, key)
    if is_text(&properties.unique_key, key):
        return True
    at, end = properties.keys.at, properties.keys.at + properties.keys.length
    while properties.keys.length and at < end:
        stop = <const uint8_t *> memchr(at, KEY_SEPARATOR, end - at)
        if stop is NULL:
            stop = end
        if stop - at == len(key) and memcmp(at, PyBytes_AS_STRING(key), stop - at) == 0:
            return True
        at = stop + 1
    return False


cdef bint is_text(const Text *text, bytes wanted) noexcept:
    return text.length == len(wanted) and memcmp(text.at, PyBytes_AS_STRING(wanted), text.length) == 0
