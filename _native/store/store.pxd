# MessageStore: the one face of an open store folder. It owns log, queues, index, checkpoint and lock, and the order of
# things: stage → one write → entries and keys → (confirm) → readers.
#
# Thread: the appender's, but for `sync`, `flush_queues` and `prepare`, which one other thread may call.

from libc.stdint cimport int64_t

from firearrow._native.store.cleaning cimport StoreCleaning
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.record cimport Message, Properties

cdef class MessageStore(StoreCleaning):
    cdef readonly str root
    cdef readonly tuple findings          # what the open found damaged and did about it, a line each
    cdef object folder, checkpoint, lock
    cdef bint sync_flush, broken, closed, unsettled
    cdef public str full                   # how full the disk is, while it is too full to take anything; else None
    cdef public int64_t max_message_bytes
    cdef int64_t newest_ms, staged_ms     # store time of the newest record that is written, that is staged

    cdef int64_t stage(self, Message *message, const Properties *properties, ConsumeQueue queue) except -1
    cpdef int64_t write(self) except -1
