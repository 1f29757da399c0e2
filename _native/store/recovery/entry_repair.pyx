"""Repairs wrong queue entries that readers find (see entry_repair.pxd). Knows no index."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.store.log.batch_consume_queue cimport (
    base_at, count_at, is_batch, messages_of, put_batch,
)
from firearrow._native.store.log.queue_check cimport matches
from firearrow._native.store.log.dispatcher cimport multi_entries
from firearrow._native.base.hash cimport java_hash_more
from firearrow._native.store.files.layout cimport ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES, PRE_BLANK_SIZE
from firearrow._native.store.log.record cimport (
    Properties, RECORD_BLANK, RECORD_OK, RecordView, scan_properties,
)
from firearrow._native.store.files.segment cimport Segment

cdef enum:
    WALK_BYTES_MAX = 8388608
    NEIGHBOURS_MAX = 32               # neighbouring entries that are tried
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LMQ_PREFIX = "%LMQ%"


cdef const uint8_t *repair_entry(
    CommitLog log, ConsumeQueue queue, int64_t entry, int32_t *size
) except? NULL:
    cdef RecordView view
    cdef int64_t at, available = 0
    key = (queue.topic, queue.queue_id, entry)
    if queue.entry_repairs is None or not queue.entry_repairs.is_new(key):
        return NULL
    at = -1 if queue.topic == SCHEDULE_TOPIC else find_record(log, queue, entry, &view)
    if at < 0:
        queue.entry_repairs.record_skipped(key)
        return NULL
    rewrite_entry(queue, entry, &view)
    queue.entry_repairs.record_repaired(key, at)
    size[0] = view.size
    return log.bytes_at(at, &available)


cdef int64_t find_record(CommitLog log, ConsumeQueue queue, int64_t entry, RecordView *view) except -2:
    """Offset of the queue's record for an entry, searched between those of its neighbours; -1 if not
    found."""
    cdef int64_t until, at = search_start(log, queue, entry, &until), first = at
    cdef int state
    while 0 <= at < until and at - first <= WALK_BYTES_MAX:
        state = log.look(at, False, view)
        if state == RECORD_BLANK:
            at = (<Segment> log.segment_at(at)).base + log.segment_bytes
            continue
        if state != RECORD_OK or view.physical_offset != at:
            return -1
        if is_record_of(queue, entry, view):
            return at if log.look(at, True, view) == RECORD_OK else -1
        at += view.size
    return -1


cdef int64_t search_start(CommitLog log, ConsumeQueue queue, int64_t entry, int64_t *until) except -2:
    """Where to search: the end of the record of the nearest valid entry before, or the start of a segment;
    `until`: the record of the nearest valid entry after."""
    cdef uint8_t at[ENTRY_BYTES]
    cdef int64_t other
    until[0] = log.written
    for other in range(entry + 1, min(entry + NEIGHBOURS_MAX, queue.end_entry)):
        if (
            matches(log, queue, other, False)
            and queue.look(other, at)
            and get_i32(at + ENTRY_AT_SIZE) != PRE_BLANK_SIZE
        ):
            until[0] = get_i64(at)
            break
    for other in range(entry - 1, max(entry - NEIGHBOURS_MAX, queue.min_entry) - 1, -1):
        if (
            matches(log, queue, other, False)
            and queue.look(other, at)
            and get_i32(at + ENTRY_AT_SIZE) != PRE_BLANK_SIZE
        ):
            return get_i64(at) + get_i32(at + ENTRY_AT_SIZE)
    return (<Segment> log.segment_at(max(until[0] - 1, log.min_offset))).base


cdef bint is_record_of(ConsumeQueue queue, int64_t entry, const RecordView *view) except -1:
    cdef bytes topic = os.fsencode(queue.topic)
    cdef Properties properties
    if is_batch(queue):
        entry = expected_offset(queue, entry)
    if view.queue_id == queue.queue_id and view.queue_offset == entry and view.topic.length == len(topic):
        if memcmp(view.topic.at, PyBytes_AS_STRING(topic), len(topic)) == 0:
            return True
    if not queue.topic.startswith(LMQ_PREFIX):
        return False
    scan_properties(&view.properties, &properties)
    return (topic, entry) in multi_entries(&properties)


cdef int64_t expected_offset(ConsumeQueue queue, int64_t entry) except -2:
    """Where a damaged entry of a batch queue begins: where the one before it ends. -1: that is not known."""
    return base_at(queue, entry - 1) + count_at(queue, entry - 1) if entry > queue.min_entry else -1


cdef int rewrite_entry(ConsumeQueue queue, int64_t entry, const RecordView *view) except -1:
    cdef Properties properties
    cdef uint8_t *at
    if queue.readonly:
        return 0
    scan_properties(&view.properties, &properties)
    at = <uint8_t *> queue.entry_at(entry)
    if is_batch(queue):
        put_batch(at, view.store_time, view.queue_offset, messages_of(view))
    put_i64(at, view.physical_offset)
    put_i32(at + ENTRY_AT_SIZE, view.size)
    put_i64(at + ENTRY_AT_TAGS, java_hash_more(0, properties.tags.at, properties.tags.length))
    queue.mark_dirty()
    return 0
