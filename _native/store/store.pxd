# MessageStore: the one face of an open store folder. It owns log, queues, index, checkpoint and lock, and the order of
# things: stage → one write → entries and keys → (confirm) → readers.
#
# Thread: the appender's, but for `sync`, `flush_queues` and `prepare`, which one other thread may call.

from libc.stdint cimport int64_t

from firearrow._native.store.cleaning cimport StoreCleaning
from firearrow._native.store.record cimport Message

cdef class MessageStore(StoreCleaning):
    cdef readonly str root
    cdef object folder, checkpoint, lock
    cdef bint sync_flush, broken, closed
    cdef public bint full                  # the disk is fuller than the broker allows: nothing is taken until it is not
    cdef public int64_t max_message_bytes
    cdef int64_t newest_ms, flushed_ms

    cdef int64_t stage(self, Message *message, object queue, bytes topic) except -1
