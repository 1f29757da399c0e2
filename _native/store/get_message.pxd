# Which records of a queue a pull gets (Apache: getMessage), copied once into one bytes object.
#
# The tags code is tested on the queue entry, before the log is read. Picked records are collected as
# (pointer, size) and copied at the end. Borrowed pointers are valid within one call. Thread: the appender's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

cdef struct Limits:
    int64_t in_memory_bytes       # records this close to the end of the log count as in memory
    int64_t bytes_in_memory, count_in_memory, bytes_on_disk, count_on_disk
    int64_t filter_bytes          # queue entries examined in one call, in bytes

cdef struct PickedRecord:
    const uint8_t *at
    int32_t size

cdef enum:
    FOUND = 0
    PICKED_MAX = 1024

# `picked` belongs to the caller and has space for `max_count` records, at most PICKED_MAX
cdef struct Scan:
    PickedRecord *picked
    int64_t count, bytes, next_offset, last_physical
    int status

# Walk the entries of one queue file from `offset`, which is between min and max, with Apache's order of
# tests: the tags code is among `codes` (if any), among `tags` (unless None), and `accept` (unless None)
# returns True. Returns how many records. OSError.
cdef int pick(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, const int32_t *codes, Py_ssize_t codes_count, object tags, object accept, Scan *scan,
) except -1
cdef void copy_picked(const Scan *scan, uint8_t *to) noexcept nogil
cdef object get_message(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, object tags, object accept,
)
