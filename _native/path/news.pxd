# News: notifies of queues that have messages which readers could not see before. It runs in every turn, and
# mostly no service of the broker listens: then no object is made. Topics on which services listen are the
# system's own. Thread: the loop's.

from firearrow._native.path.holds cimport Holds

cdef class Listener:
    cdef object call, crowd
    cdef frozenset topics

    cdef bint wants(self, list queues) except -1

cdef class News:
    cdef Holds holds
    cdef list listeners

    cdef bint somebody_waits(self) except -1
    cdef int tell(self, list queues) except -1
