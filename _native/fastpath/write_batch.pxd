# WriteBatch: messages staged in one pass of the loop become durable together, then their replies are sent.
#
# Order: handlers stage messages and add replies while the ready sockets are read; `commit` runs after them
# (call_soon), writes once, and sends the replies. Under SYNC_FLUSH, replies and arrival notifications wait
# until the flusher has synced past them: no reader sees a message that a crash can lose. Under SYNC_MASTER
# they also wait until enough slaves have acknowledged them: `replicated` and `replicated_visible` are set
# whenever that changes, so a batch costs two comparisons.
#
# Ownership: `staged` belongs to this pass; `unsynced` waits for the disk, in log order. Units: milliseconds
# of the monotonic clock. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.fastpath.arrivals cimport ArrivalNotifier
from firearrow._native.fastpath.pending_replies cimport Pending
from firearrow._native.fastpath.pending_replies cimport ReplyBatch
from firearrow._native.store.message_store cimport MessageStore
from firearrow._native.base.clock cimport Clock
from firearrow._native.base.histogram cimport Histogram

cdef class WriteBatch:
    cdef MessageStore store
    cdef Clock clock
    cdef ArrivalNotifier arrivals
    cdef object scheduler, request_sync, full, journal, all_synced
    cdef object on_written                # called after each write; None: nothing is replicated
    cdef bint sync_flush, planned, waits_for_slaves, read_unconfirmed
    cdef public bint refuses_sends  # Sends that wait for slaves are refused: too few copies are in sync.
    cdef int64_t sync_timeout_ms
    cdef int64_t refused_ms               # time of the last refusal; -1: none lately
    cdef str stopped                      # why the flusher stopped syncing
    cdef list before_write_callbacks
    cdef list staged                      # of Pending
    cdef list callbacks                   # of (end, callback)
    cdef object unsynced, unsynced_callbacks  # deques
    # of `unsynced`, those that readers do not see; None: readers see confirmed ones
    cdef object unshown
    cdef list hidden                      # queues of what readers may not see since the start; else None
    cdef int64_t hidden_end
    cdef int64_t durable                  # end of what was written, or under SYNC_FLUSH synced
    cdef int64_t replicated               # enough slaves have the log up to here for an answer,
    cdef int64_t replicated_visible       # … for readers
    # replies up to here were sent although too few slaves have their records
    cdef int64_t given_up
    # the code of replies that would wait for slaves that are not there; 0: none
    cdef int32_t slave_fault
    cdef readonly Histogram sync_waits  # How long replies waited for the disk, in microseconds.
    cdef ReplyBatch reply_batch           # the last of `staged`, while it accepts replies

    cdef int add_reply_batch(self, ReplyBatch reply_batch) except -1
    cdef int add_pending(self, Pending waiting) except -1
    cdef int schedule_commit(self) except -1
    cdef int close_reply_batch(self) except -1
    cdef int notify(self, list settled) except -1
    cdef int await_confirm(self, list staged, list callbacks) except -1
    cdef int advance(self) except -1
    cdef int confirm(self, int64_t physical_offset) except -1
    cdef int show(self, int64_t physical_offset) except -1
    cdef int show_unconfirmed(self) except -1
    cdef int answer_unreplicated(self) except -1
    cdef int set_if_all_synced(self) except -1
    cdef int sync_journal(self) except -1
    cdef int note_refused(self, error) except -1
    cdef int note_stored(self) except -1
