# Lane: the fast path for some requests. `handle_frame` returns TAKEN; or NOT_HANDLED, and then it has changed nothing,
# so that the complete handler may process the request. Frame and header are borrowed for the call.
#
# `handle_templated` comes first if the connection has a pattern: a header that fits it is not parsed as a whole.
#
# Front: a connection that offers each request to its lane first. All answers, the lane's and others, collect
# in `out` in the order of their requests and leave as one write.
#
# Thread: the loop's.

from libc.stdint cimport uint8_t

from firearrow._native.fastpath.header_template cimport HeaderTemplate
from firearrow._native.wire.connection cimport Connection
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    NOT_HANDLED = 0
    HANDLED = 1

cdef class FastConnection(Connection):
    cdef Writer out
    cdef public FastHandler fast_handler                 # None: all requests go to `received`
    cdef public bytes host                # the peer's address as in records
    cdef HeaderTemplate template                  # of its sends; None: no send yet

    cdef int append_reply(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int schedule_flush(self) except -1
    cdef int write_through(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int flush_out(self) except -1
    cpdef abort_with(self, error)

cdef class FastHandler:
    cdef int handle_frame(self, FastConnection connection, const Frame *frame, const Header *header) except -1
    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1
