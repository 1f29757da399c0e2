# Turn: messages staged in one pass of the loop become durable together, then their answers are sent.
#
# Order: handlers stage and park while the ready sockets are read; `end` runs after them (call_soon), writes
# once, and sends the answers. Under SYNC_FLUSH, answers and arrival notifications wait until the flusher has
# synced past them: no reader sees a message that a crash can lose.
#
# Ownership: `staged` belongs to this pass; `unsynced` waits for the disk, in log order. Units: milliseconds
# of the monotonic clock. Thread: the loop's.

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
    cdef int64_t refused_ms               # time of the last refusal; -1: none lately
    cdef str stopped                      # why the flusher stopped syncing
    cdef list preparing                   # callbacks to run before the write
    cdef list staged                      # of Waiting
    cdef list following                   # of (end, then)
    cdef object unsynced, unsynced_following  # deques
    cdef Run run                          # the last of `staged`, while it accepts answers

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
