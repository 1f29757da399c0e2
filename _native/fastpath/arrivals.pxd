# News: notifies of queues that have messages which readers could not see before. It runs in every turn, and
# mostly no service of the broker listens: then no object is made. Topics on which services listen are the
# system's own. Thread: the loop's.

from firearrow._native.fastpath.long_polling cimport PullHoldService

cdef class ArrivalListener:
    cdef object call, waiters
    cdef frozenset topics

    cdef bint is_interested(self, list queues) except -1

cdef class ArrivalNotifier:
    cdef PullHoldService hold_service
    cdef list listeners

    cdef bint has_waiters(self) except -1
    cdef int notify(self, list queues) except -1
