# ArrivalNotifier: notifies held pulls and services of queues with messages that readers could not see before.
# It runs in every write batch; usually no service listens, and then it creates no object. Services listen on
# system topics only. Thread: the loop's.

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
