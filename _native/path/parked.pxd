# Waiting: replies that wait for their turn's write, and under SYNC_FLUSH for the sync after it: one answer
# (Parked), or the fast path's answers of one turn (run.pxd). Some answers of a Run may wait for the disk and
# others not: late and early ones.
#
# Ownership: the turn owns it until its answers are sent. Thread: the loop's.

from libc.stdint cimport int64_t

cdef class Waiting:
    cdef int64_t end                      # of the log after its record
    cdef int64_t since_ms                 # monotonic
    cdef bint plain                       # of topics on which no service of the broker listens (news.pxd)

    cdef int name_queues(self, list queues) except -1
    cdef int let_go(self) except -1
    cdef int let_go_early(self) except -1
    cdef int let_go_late(self) except -1
    cdef int refuse(self, str remark) except -1
    cdef int refuse_late(self, str remark) except -1
    cdef int expire(self) except -1

cdef class Parked(Waiting):
    cdef tuple queue
    cdef object peer, answer              # None: no answer
    cdef bint waits
