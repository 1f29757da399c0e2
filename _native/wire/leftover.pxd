# Leftover: connections of a loop that have whole frames left over, first come first served. Each iteration of
# the loop gives them a slice of time and serves ready sockets in between: a thousand busy connections do not
# delay a quiet one by all their work.
#
# Owner: the thread's loop. A closed connection does nothing when its turn comes. Thread: the loop's.

cdef class FairQueue:
    cdef object loop
    cdef object connections                     # deque of Conn
    cdef bint planned

    cdef Py_ssize_t count(self)
    cdef int add(self, connection) except -1
