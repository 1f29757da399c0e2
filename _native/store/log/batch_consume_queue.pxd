# The entries of batch queues (Apache: BatchConsumeQueue), which may be of several messages each: which entry
# has a queue offset, and which offset an entry begins at. Functions for both kinds of queues; in a plain one
# the number of an entry is its offset.
#
# Bytes 20 to 45 of an entry are written when its record is staged, into the reserved slot; the entry exists
# when the first 20 are written. So the offset of the next message is where the last staged entry ends, and a
# queue needs no more memory than a plain one. Thread: the appender's.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.store.files.layout cimport ENTRY_BYTES
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport RecordView, Text


cdef inline bint is_batch(ConsumeQueue queue) noexcept:
    return queue.entry_bytes != ENTRY_BYTES


cdef inline int64_t offset_at(ConsumeQueue queue, int64_t entry) except -1:
    """The queue offset at which an entry begins, or the next one will. OSError."""
    return base_at(queue, entry) if is_batch(queue) else entry


cdef inline int64_t first_offset(ConsumeQueue queue) except -1:
    return offset_at(queue, queue.min_entry)


cdef inline int64_t visible_offset(ConsumeQueue queue) except -1:
    return offset_at(queue, queue.visible)


cdef inline int64_t next_offset(ConsumeQueue queue) except -1:
    return offset_at(queue, queue.next_entry)


cdef inline int64_t entry_with(ConsumeQueue queue, int64_t offset) except -2:
    """The entry of a message, or of the first one after it; `end_entry` if there is none; -1 for an offset
    before the queue's first message. OSError."""
    return find_entry(queue, offset) if is_batch(queue) else offset


cdef int64_t base_at(ConsumeQueue queue, int64_t entry) except -1
cdef int64_t find_entry(ConsumeQueue queue, int64_t offset) except -2
cdef int64_t search(ConsumeQueue queue, int64_t low, int64_t high, int64_t offset) except -1
cdef int64_t count_at(ConsumeQueue queue, int64_t entry) except -1
cdef int64_t queue_store_time(CommitLog log, ConsumeQueue queue, int64_t offset) except -2
cdef int64_t entry_by_time(ConsumeQueue queue, int64_t timestamp_ms, bint upper) except -1
cdef void put_batch(uint8_t *entry, int64_t store_time, int64_t base, int64_t count) noexcept nogil
cdef int copy_entries(CommitLog log, ConsumeQueue plain, ConsumeQueue batch) except -1
cdef int64_t inner_number(const Text *properties, bytes name) noexcept
cdef int64_t messages_of(const RecordView *view) noexcept
