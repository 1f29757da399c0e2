# StoreReading: the reading half of MessageStore. It looks at log, queues and index, which the store owns, opens and closes,
# and shows what lies below `confirmed` only. Pointers into the mapped log die within a call.
#
# Thread: the appender's.

from libc.stdint cimport int64_t

from firearrow._native.store.commitlog cimport CommitLog
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.dispatch cimport Dispatch
from firearrow._native.store.fetch cimport Limits
from firearrow._native.store.keyindex cimport KeyIndex

cdef class StoreReading:
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index
    cdef Limits limits
    cdef readonly int64_t confirmed

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id)
