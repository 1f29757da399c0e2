"""StoreReader: read access to an open store (see store_reader.pxd)."""

import os
from itertools import islice

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.store.get_message cimport get_message
from firearrow._native.base.hash cimport index_hash
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.files.layout cimport KEY_SEPARATOR
from firearrow._native.store.log.record cimport RECORD_OK, Properties, RecordView, Text, scan_properties

from firearrow._native.base.hash import java_hash
from firearrow._native.store.log.results import QueueEntry

QUEUE_ID_MAX = 65535
COMPARED_MAX = 65536


def memory_bytes(int percent=40):
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * percent // 100


@cython.final
cdef class StoreReader:
    def __init__(self, CommitLog log not None, Dispatch dispatch not None, KeyIndex index):
        self.log, self.dispatch, self.index = log, dispatch, index
        self.set_limits(
            in_memory_bytes=memory_bytes(), bytes_in_memory=262144, count_in_memory=32, bytes_on_disk=65536,
            count_on_disk=8, filter_bytes=16000,
        )

    def set_limits(
        self, *, int64_t in_memory_bytes, int64_t bytes_in_memory, int64_t count_in_memory,
        int64_t bytes_on_disk, int64_t count_on_disk, int64_t filter_bytes,
    ):
        self.limits.in_memory_bytes = in_memory_bytes
        self.limits.bytes_in_memory, self.limits.count_in_memory = bytes_in_memory, count_in_memory
        self.limits.bytes_on_disk, self.limits.count_on_disk = bytes_on_disk, count_on_disk
        self.limits.filter_bytes = filter_bytes

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id):
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        return self.dispatch.queue_of(topic.encode("utf-8", "replace"), <int32_t> queue_id, False)

    cdef bint is_trimmed(self, const RecordView *view) except -1:
        """Whether the record is one that its queue was trimmed of."""
        if not self.dispatch.trims:
            return False
        topic = PyBytes_FromStringAndSize(<const char *> view.topic.at, view.topic.length)
        return view.physical_offset < <int64_t> self.dispatch.trims.get((topic, view.queue_id), 0)

    def queue_ids(self, str topic not None):
        cdef bytes name = topic.encode("utf-8", "replace")
        return sorted([number for queue_topic, number in self.dispatch.queues if queue_topic == name])

    def queues(self):
        return [(os.fsdecode(topic), number) for topic, number in self.dispatch.queues]

    def get(
        self, str topic not None, int64_t queue_id, int64_t queue_offset, int64_t max_count,
        int64_t max_bytes=134217728, tags=None, accept=None,
    ):
        return get_message(
            self.log, self.queue(topic, queue_id), &self.limits, queue_offset, max_count, max_bytes, tags,
            accept,
        )

    def min_offset(self, str topic not None, int64_t queue_id):
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.min_entry

    def max_offset(self, str topic not None, int64_t queue_id):
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.visible

    def store_time(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        queue = self.queue(topic, queue_id)
        return -1 if queue is None else queue.store_time(self.log, queue_offset)

    def offset_by_time(self, str topic not None, int64_t queue_id, int64_t timestamp_ms, bint upper=False):
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.offset_by_time(self.log, timestamp_ms, upper)

    def entries(self, str topic not None, int64_t queue_id, int64_t queue_offset, int64_t count):
        queue = self.queue(topic, queue_id)
        return [] if queue is None else [QueueEntry(*entry) for entry in queue.entries(queue_offset, count)]

    def record_at(self, int64_t physical_offset, *, bint unconfirmed=False):
        cdef RecordView view
        cdef int64_t available = 0
        cdef const uint8_t *at
        cdef int64_t end = self.log.written if unconfirmed else self.confirmed
        if not self.log.min_offset <= physical_offset < end:
            return None
        if (
            self.log.look(physical_offset, False, &view) != RECORD_OK
            or view.physical_offset != physical_offset
        ):
            return None
        if physical_offset + view.size > end or self.is_trimmed(&view):
            return None
        at = self.log.bytes_at(physical_offset, &available)
        return (<const char *> at)[:view.size]

    def query(
        self, str topic not None, str key not None, int64_t max_count, int64_t begin_ms, int64_t end_ms,
        bint tag=False, *, bint unconfirmed=False,
    ):
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
        return self.dispatch.entry_repairs.drain()

    def is_near_end(self, int64_t physical_offset):
        return self.log.written - physical_offset <= self.limits.in_memory_bytes

    def earliest_store_time(self):
        cdef RecordView view
        if not self.log.bases or self.log.look(self.log.min_offset, False, &view) != RECORD_OK:
            return -1
        return view.store_time


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
