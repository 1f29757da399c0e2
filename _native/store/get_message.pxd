# Apache's getMessage: which records of a queue a pull gets (store-and-broker §3.1), copied once into one
# bytes object.
#
# The tag is tested on the queue entry before the log is touched; what is picked is noted as (place, size),
# added up, and copied at the end. Borrowed pointers live for one call. Thread: the appender's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

cdef struct Limits:
    int64_t in_memory_bytes       # a record so near the log's end counts as being in memory
    int64_t bytes_in_memory, count_in_memory, bytes_on_disk, count_on_disk
    int64_t filter_bytes          # of queue entries examined in one call

cdef struct PickedRecord:
    const uint8_t *at
    int32_t size

cdef enum:
    FOUND = 0
    PICKED_MAX = 1024

# `picked` is the caller's, with room for as many as it asks for, PICKED_MAX at most
cdef struct Scan:
    PickedRecord *picked
    int64_t count, bytes, next_offset, last_physical
    int status

# Walk the entries of one queue file from `offset`, which lies between min and max; Apache's order of tests.
# An entry has one of `codes`, unless there are none, one of `tags`, unless it is None, and `accept` is asked
# at last. OSError.
cdef int pick(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, const int32_t *codes, Py_ssize_t codes_count, object tags, object accept, Scan *scan,
) except -1
cdef void copy_picked(const Scan *scan, uint8_t *to) noexcept nogil
cdef object get_message(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, object tags, object accept,
)
