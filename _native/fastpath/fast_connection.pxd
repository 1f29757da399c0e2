# FastHandler: the fast path for some requests. `handle_frame` returns HANDLED, or NOT_HANDLED; then it has
# changed nothing, and the complete handler processes the request. Frame and header are borrowed for the call.
# `handle_templated` is tried first if the connection has a template: a matching header is not parsed.
#
# FastConnection: a connection that offers each request to its FastHandler first. All replies collect in `out`
# in the order of their requests and are sent with one write.
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
    cdef public FastHandler fast_handler  # None: all requests go to `received`
    cdef public bytes host                # the peer's address as in records
    cdef HeaderTemplate template          # of its sends; None: no send yet

    cdef int append_reply(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int schedule_flush(self) except -1
    cdef int write_through(self, const uint8_t *answers, Py_ssize_t length) except -1
    cdef int flush_out(self) except -1
    cpdef abort_with(self, error)

cdef class FastHandler:
    cdef int handle_frame(self, FastConnection connection, const Frame *frame, const Header *header) except -1
    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1
