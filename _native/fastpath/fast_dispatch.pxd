# FastDispatch: dispatches requests to sender and puller by their code. Each listener has its own, since the
# VIP port takes no pulls. CompleteDispatch: leaves all requests to the complete path. RequestCounters: the
# RequestCounts of all connections. Thread: the loop's.

cimport cython
from firearrow._native.fastpath.fast_connection cimport FastHandler, RequestCounts
from firearrow._native.fastpath.long_polling cimport PullHoldService
from firearrow._native.fastpath.pull_message cimport Puller
from firearrow._native.fastpath.send_message cimport Sender


@cython.final
cdef class RequestCounters:
    cdef dict clients                     # (language, version) -> RequestCounts

    cdef RequestCounts of(self, int language, int version)


cdef class CompleteDispatch(FastHandler):
    cdef PullHoldService hold_service


cdef class FastDispatch(FastHandler):
    cdef RequestCounters counters
    cdef Sender sender
    cdef Puller puller                    # None: takes no pulls
