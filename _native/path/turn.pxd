# Turn: messages staged in one pass of the loop become durable together, then their answers go.
#
# Order: handlers stage and park while the ready sockets are read; `end` runs behind them (call_soon), writes
# once, and lets the answers go. Under SYNC_FLUSH the answers, and the news of the queues, wait until the
# flusher has synced past them: nobody sees a message that a crash can take back.
#
# Ownership: `staged` is this pass's, `unsynced` waits for the disk, in the order of the log. Thread: the
# loop's.

from libc.stdint cimport int64_t

from firearrow._native.path.news cimport News
from firearrow._native.path.parked cimport Waiting
from firearrow._native.path.run cimport Run
from firearrow._native.store.store cimport MessageStore
from firearrow._native.wire.clocks cimport Clock

cdef class Turn:
    cdef MessageStore store
    cdef Clock clock
    cdef News news
    cdef object plans, sync_soon, full, journal, settling
    cdef bint sync_flush, planned
    cdef int64_t sync_timeout_ms
    cdef int64_t refused_ms               # -1: nothing was refused lately
    cdef str stopped                      # why nothing is synced any more
    cdef list preparing                   # to be called before the write
    cdef list staged                      # of Waiting
    cdef list following                   # of (end, then)
    cdef object unsynced, unsynced_following  # deques
    cdef Run run                          # of `staged` the last one, while answers come to it

    cdef int join(self, Run run) except -1
    cdef int hold(self, Waiting waiting) except -1
    cdef int plan(self) except -1
    cdef int close_run(self) except -1
    cdef int tell(self, list settled) except -1
    cdef int await_sync(self, list staged, list following) except -1
    cdef int note_settled(self) except -1
    cdef int sync_journal(self) except -1
    cdef int note_refused(self, error) except -1
    cdef int note_stored(self) except -1
