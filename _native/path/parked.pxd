# Waiting: replies that wait for their turn's write, and under SYNC_FLUSH for the sync after it: one answer
# (Parked), or the fast path's answers of one turn (run.pxd). Some answers of a Run may wait for the disk and
# others not: late and early ones.
#
# Ownership: the turn owns it until its answers are sent. Thread: the loop's.

from libc.stdint cimport int64_t

cdef class Pending:
    cdef int64_t end                      # of the log after its record
    cdef int64_t since_ms                 # monotonic
    cdef bint is_plain                       # of topics on which no service of the broker listens (news.pxd)

    cdef int collect_queues(self, list queues) except -1
    cdef int send(self) except -1
    cdef int send_unsynced(self) except -1
    cdef int send_synced(self) except -1
    cdef int reject(self, str remark) except -1
    cdef int reject_synced(self, str remark) except -1
    cdef int expire(self) except -1

cdef class PendingReply(Pending):
    cdef tuple queue
    cdef object peer, answer              # None: no answer
    cdef bint waits
