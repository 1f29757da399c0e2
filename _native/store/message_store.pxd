# MessageStore: an open store folder. It owns log, queues, index, checkpoint, lock, reader and cleaner.
#
# Order: stage → one write to the log → queue entries and keys → (confirm) → visible to readers.
# Thread: the appender's; `sync`, `flush_queues` and `prepare` may be called by one other thread: what they
# touch is in the table of docs/ARCHITECTURE.md's chapter Threads.

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
    cdef readonly tuple findings  # type: tuple[str, ...]  # Damage found at the open and what was done.
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index                   # None: messages are not indexed
    cdef object folder, checkpoint, lock
    cdef object confirm_offset            # ConfirmOffsetFile; None: readers wait for no copies
    cdef bint sync_flush, confirm_later, broken, closed, unsettled
    cdef public str full  # type: str | None  # why puts are refused while the disk is too full; else None
    cdef public str stopped  # type: str | None  # Why nothing is written: a service thread ended.
    cdef public int64_t max_message_bytes
    cdef public int64_t confirm_limit  # readers see at most this: a slave's master reports what is confirmed
    # Why puts are refused: another broker writes the log, or perhaps does (`Follower`: a master).
    cdef public object write_refusal  # type: WriteRefusal | None
    cdef tuple turn_began                 # what a checkpoint may state once files of lite topics are made
    cdef int64_t newest_ms, staged_ms     # store time of the newest written record, staged record

    cdef int64_t stage(self, Message *message, const Properties *properties, ConsumeQueue queue) except -1
    cdef int64_t stage_any(self, Message *message, ConsumeQueue queue) except -1
    cdef int64_t stage_batch(
        self, Message *message, const Properties *properties, ConsumeQueue queue
    ) except -1
    cdef int64_t stage_record(
        self, Message *message, const Properties *properties, ConsumeQueue queue
    ) except -1
    cdef int hide(self, int64_t physical_offset) except -1
    cpdef int64_t write(self) except -1


cdef inline bint is_refusing(MessageStore store) noexcept:
    """Whether it takes no messages now; `put` states why."""
    return (
        store.broken or store.closed or store.full is not None or store.stopped is not None
        or store.write_refusal is not None
    )
