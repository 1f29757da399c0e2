# PendingCalls: a client's connection. Numbers the requests, passes each response to its waiter, checks
# time-outs.
#
# Ownership: `pending_calls` owns the waiters. A waiter leaves it exactly once: with its response, its
# time-out or the loss of the connection. A waiter reads its response in place: frame and header are invalid
# once
# `response_received` returns. Exceptions of a waiter go to the loop's exception handler and affect no other
# waiter; a WireError closes the connection.
#
# Order: one sweep every TICK_S looks for waiters that are late or cancelled; calls have no timers of their
# own. A response without a waiter is dropped. Thread: the loop's.
#
# Silence: a connection may be dead although no end of it ever came. If calls are late and nothing at all was
# received since they were sent, for SILENT_S or longer, `silent` is called. A call that the peer holds (long
# polling) proves nothing before it is late.

from libc.stdint cimport int32_t

from firearrow._native.wire.connection cimport Connection
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef class CallWaiter:                # sets its future to the command
    cdef double deadline
    cdef double posted
    cdef long long frames_before  # received by the connection when the request was sent
    cdef object future

    cdef bint is_waiting(self) except -1
    cdef int response_received(self, const Frame *frame, const Header *header) except -1
    cdef int call_failed(self, object error) except -1

cdef class PendingCalls(Connection):
    cdef readonly dict pending_calls
    cdef Py_ssize_t pending_max
    cdef int32_t last_opaque
    cdef double earliest          # lower bound of all deadlines
    cdef object expiry_timer
    cdef double next_sweep
    cdef double silent_since      # when the first late request of this silence was sent
    cdef long long silent_frames  # received_frames and partial_bytes during this silence
    cdef Py_ssize_t silent_partial
    cdef readonly bint retired

    cdef int32_t number(self) noexcept
    cdef object too_many_error(self)
    cdef int expire_calls(self, double now) except -1
    cdef int plan_sweep(self, double now) except -1
    cdef int check_silence(self, double posted, double now) except -1
    cdef int fail(self, CallWaiter waiter, object error) except -1
    cdef int post(self, int32_t opaque, bytes frame, CallWaiter waiter, double timeout_s) except -1
