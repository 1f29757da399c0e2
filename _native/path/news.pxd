# News: who hears that queues have messages that readers could not see before. Told in every turn, and mostly
# nobody of the broker's services wants to know: no object is made then. Topics in which services listen are
# the system's own. Thread: the loop's.

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
