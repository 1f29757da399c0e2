# Connections of a loop that have whole frames left over, first come first served. Each pass gives them a
# slice of time, and the loop serves what is ready in between: a thousand connections that ask for much do not
# keep one that asks for little waiting for all of them.
#
# Thread: the loop's. A connection that is gone says so by doing nothing.

cdef class Leftover:
    cdef object loop
    cdef object conns                     # deque of Conn
    cdef bint planned

    cdef Py_ssize_t count(self)
    cdef int add(self, conn) except -1
