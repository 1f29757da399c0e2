# Run: answers of one turn that wait for its write, and the queues that got messages. It holds consecutive
# answers of the fast path; an answer of a complete handler ends it. So the answers of each connection keep
# their order.
#
# Ownership: a parcel owns its connection until its answers are sent; answers are whole frames, copied to the
# connections' `out`. The turn closes the Run once, before its write or when another answer is parked. Thread:
# the loop's.
# Waiting: replies that wait for their turn's write, and under SYNC_FLUSH for the sync after it: one answer
# (Parked), or the fast path's answers of one turn (run.pxd). Some answers of a Run may wait for the disk and
# others not: late and early ones.
#
# Ownership: the turn owns it until its answers are sent. Thread: the loop's.

from libc.stdint cimport int64_t
cimport cython
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.wire.write_buffer cimport Writer


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


cdef struct ReplySlice:
    void *connection                           # a Front
    Py_ssize_t at, length                 # of its answers, which follow each other
    bint waits                            # for the disk


@cython.final
cdef class ReplyBatch(Pending):
    cdef Writer answers
    cdef ReplySlice *slices
    cdef Py_ssize_t count, capacity
    cdef list queues                      # ConsumeQueues that got messages
    cdef bint closed                      # accepts no more answers
    cdef int64_t number
    cdef int64_t now_ms

    cdef int add_queue(self, ConsumeQueue queue, int64_t end) except -1
    cdef int begin(self, FastConnection connection, bint waits) except -1
    cdef int finish(self) except -1
    cdef int deliver(self, int which) except -1
    cdef Py_ssize_t next_of(self, int which, Py_ssize_t n) noexcept
    cdef int send_slice(self, const ReplySlice *part, bint more) except -1
    cdef void drop(self) noexcept
