# Calls: a connection of a client. Numbers the requests, passes each answer to its waiter, keeps time-outs.
#
# Ownership: `pending` owns the waiters. A waiter leaves it exactly once: with its answer, its time-out or the
# loss of the connection. A waiter reads its answer in place: frame and header are invalid once `answered`
# returns. Exceptions of a waiter go to the loop's exception handler and affect no other waiter; a WireError
# closes the connection.
#
# Order: one sweep every TICK_S looks for waiters that are late or cancelled; calls have no timers of their
# own. An answer without a waiter is dropped. Thread: the loop's.

from libc.stdint cimport int32_t

from firearrow._native.wire.conn cimport Conn
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef class Waiter:                # sets its future to the whole command
    cdef double deadline
    cdef object future

    cdef bint wanted(self) except -1
    cdef int answered(self, const Frame *frame, const Header *header) except -1
    cdef int failed(self, object error) except -1

cdef class Calls(Conn):
    cdef readonly dict pending_calls
    cdef Py_ssize_t pending_max
    cdef int32_t last_opaque
    cdef double earliest          # lower bound of all deadlines
    cdef object sweep
    cdef readonly bint retired

    cdef int32_t number(self) noexcept
    cdef object refusal(self)
    cdef int end_late(self, double now) except -1
    cdef int fail(self, Waiter waiter, object error) except -1
    cdef int post(self, int32_t opaque, bytes frame, Waiter waiter, double timeout_s) except -1
