# MessageStore: the one face of an open store folder. It owns log, queues, index, checkpoint and lock, and the order of
# things: stage → one write → entries and keys → (confirm) → readers.
#
# Thread: the appender's, but for `sync`, `flush_queues` and `prepare`, which one other thread may call.

from libc.stdint cimport int64_t

from firearrow._native.store.commitlog cimport CommitLog
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.dispatch cimport Dispatch
from firearrow._native.store.fetch cimport Limits
from firearrow._native.store.keyindex cimport KeyIndex
from firearrow._native.store.record cimport Message

cdef class MessageStore:
    cdef readonly str root
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index
    cdef object folder, checkpoint, lock
    cdef Limits limits
    cdef bint sync_flush, broken, closed
    cdef readonly int64_t confirmed
    cdef public int64_t max_message_bytes
    cdef int64_t newest_ms, flushed_ms

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id)
    cdef int64_t stage(self, Message *message, object queue, bytes topic) except -1
