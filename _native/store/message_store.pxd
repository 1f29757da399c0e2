# MessageStore: an open store folder. It owns log, queues, index, checkpoint and lock, its reader and its cleaner, and the
# order of things: stage → one write → entries and keys → (confirm) → readers.
#
# Thread: the appender's, but for `sync`, `flush_queues` and `prepare`, which one other thread may call.

from libc.stdint cimport int64_t

from firearrow._native.store.store_cleaner cimport StoreCleaner
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.store_reader cimport StoreReader
from firearrow._native.store.log.record cimport Message, Properties

cdef class MessageStore:
    cdef readonly str root
    cdef readonly StoreReader reader
    cdef readonly StoreCleaner cleaner
    cdef readonly tuple findings          # what the open found damaged and did about it, a line each
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index                   # None where messages are not indexed
    cdef object folder, checkpoint, lock
    cdef bint sync_flush, broken, closed, unsettled
    cdef public str full                   # how full the disk is, while it is too full to take anything; else None
    cdef public int64_t max_message_bytes
    cdef int64_t newest_ms, staged_ms     # store time of the newest record that is written, that is staged

    cdef int64_t stage(self, Message *message, const Properties *properties, ConsumeQueue queue) except -1
    cpdef int64_t write(self) except -1
