# Apache's getMessage: which records of a queue a pull gets (store-and-broker §3.1), copied once into one bytes object.
#
# The tag is tested on the queue entry before the log is touched; what is picked is noted as (place, size), added up,
# and copied at the end. Borrowed pointers live for one call. Thread: the appender's.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.store.commitlog cimport CommitLog
from firearrow._native.store.consumequeue cimport ConsumeQueue

cdef struct Limits:
    int64_t in_memory_bytes       # a record so near the log's end counts as being in memory
    int64_t bytes_in_memory, count_in_memory, bytes_on_disk, count_on_disk
    int64_t filter_bytes          # of queue entries examined in one call

cdef object fetch(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count, int64_t max_bytes,
    object tags, object accept,
)
