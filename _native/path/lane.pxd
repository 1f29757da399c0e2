# Lane: the fast path for some requests. `take` returns TAKEN; or NOT_MINE, and then it has changed nothing,
# so that the complete handler may process the request. Frame and header are borrowed for the call.
#
# `take_alike` comes first if the connection has a pattern: a header that fits it is not parsed as a whole.
#
# Front: a connection that offers each request to its lane first. All answers, the lane's and others, collect
# in `out` in the order of their requests and leave as one write.
#
# Thread: the loop's.

from libc.stdint cimport uint8_t

from firearrow._native.path.pattern cimport Pattern
from firearrow._native.wire.conn cimport Conn
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.writer cimport Writer

cdef enum:
    NOT_MINE = 0
    TAKEN = 1

cdef class Front(Conn):
    cdef Writer out
    cdef public Lane lane                 # None: all requests go to `received`
    cdef public bytes host                # the peer's address as in records
    cdef Pattern pattern                  # of its sends; None: no send yet

    cdef int put(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int plan(self) except -1
    cdef int pass_on(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int let_out(self) except -1
    cpdef cut(self, error)

cdef class Lane:
    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1
    cdef int take_alike(self, Front front, const Frame *frame) except -1
