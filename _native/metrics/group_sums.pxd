# GroupSums: a group's progress in its topics, added up, for lists of all groups: with 1,000 topics of 250
# groups each, a quarter of a million of pairs. Ends of queues, and when messages were stored, are looked up
# once: groups read the same queues, and often stand at the same message.
#
# Made for one answer, in the loop thread; between two calls of `add` the loop may do other work. Units:
# messages, milliseconds.

from libc.stdint cimport int64_t

from firearrow._native.metrics.lag_table cimport KnownAge
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

cdef enum:
    TIMES_KEPT = 16


cdef class QueueEnds:
    cdef KnownAge times[TIMES_KEPT]       # `age` is the store time
    cdef list queues                      # ConsumeQueue of the read queues that have messages
    cdef Py_ssize_t read_queues


cdef class GroupSums:
    cdef StoreReader reader
    cdef CommitLog log
    cdef object read_queues
    cdef dict topics                      # topic → QueueEnds
    cdef readonly int64_t count, consumed, lag
    cdef readonly int64_t oldest_ms  # When the oldest unread message was stored; NEVER_MS: none.

    cdef int add_topic(self, str topic, dict offsets) except -1
    cdef int add_queue(self, QueueEnds ends, ConsumeQueue queue, int64_t committed) except -1
    cdef QueueEnds look_up(self, str topic)
