# Calls: a connection of a client. Numbers what it sends, brings answers to who waits, keeps time-outs.
#
# Ownership: `pending` owns the waiters; one leaves it exactly once, with its answer, its time-out or the loss
# of the connection. A waiter reads its answer in place: frame and header die when `answered` returns. What a
# waiter raises goes to the loop's exception handler and disturbs nobody, but WireError: the connection is
# closed.
#
# Order: one sweep each TICK_S looks for waiters that are late or no longer wanted; there is no timer for each
# call. An answer that nobody waits for is dropped. Thread: the loop's.

from libc.stdint cimport int32_t

from firearrow._native.wire.conn cimport Conn
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef class Waiter:                # this one gives its future the whole command
    cdef double deadline
    cdef object future

    cdef bint wanted(self) except -1
    cdef int answered(self, const Frame *frame, const Header *header) except -1
    cdef int failed(self, object error) except -1

cdef class Calls(Conn):
    cdef readonly dict pending_calls
    cdef Py_ssize_t pending_max
    cdef int32_t last_opaque
    cdef double earliest          # no deadline lies before it
    cdef object sweep
    cdef readonly bint retired

    cdef int32_t number(self) noexcept
    cdef object refusal(self)
    cdef int end_late(self, double now) except -1
    cdef int fail(self, Waiter waiter, object error) except -1
    cdef int post(self, int32_t opaque, bytes frame, Waiter waiter, double timeout_s) except -1
