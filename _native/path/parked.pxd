# What waits for its turn's write, and under SYNC_FLUSH for the sync behind it: one answer (Parked), or a run
# of the fast lane's (run.pxd). Some of a run's answers may wait for the disk and some not: late and early
# ones.
#
# Ownership: the turn owns it until its answers are gone. Thread: the loop's.

from libc.stdint cimport int64_t

cdef class Waiting:
    cdef int64_t end                      # of the log, behind what it speaks of
    cdef int64_t since_ms                 # monotonic
    cdef bint plain                       # of topics in which no service of the broker listens (news.pxd)

    cdef int name_queues(self, list queues) except -1
    cdef int let_go(self) except -1
    cdef int let_go_early(self) except -1
    cdef int let_go_late(self) except -1
    cdef int refuse(self, str remark) except -1
    cdef int refuse_late(self, str remark) except -1
    cdef int expire(self) except -1

cdef class Parked(Waiting):
    cdef tuple queue
    cdef object peer, answer              # None: nobody is told
    cdef bint waits
