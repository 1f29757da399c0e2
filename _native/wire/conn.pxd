# One peer: on a transport of the loop, or plugged into an engine, which feeds the same frame loop.
#
# Ownership: bytes are received into one window that all connections of a thread share; what is left of a
# partial frame after a read is copied to the connection's own `rest`, whose room grows with what has really
# come, never with what a length word claims; but a room that lies ready on the shelf is taken. Commands own
# what they hold, so nothing points into window or rest when a call returns.
#
# Order: a read gives every whole frame to `received`, at most FRAMES_A_TURN of them, then lets the others
# have their turn; answers gather in `answers` and leave as one write. While the peer does not read what it is
# sent (`congested`), it is not read either: bounded by the transport's high-water mark and the answers of one
# turn. What is kept of partial frames and what the kernel does not take counts in the `budget` that
# connections share. A client `reads_always`: answers that nobody reads would keep the peer from reading what
# we send.
#
# Thread: the loop's. Subclasses (server, client) override `received` and `lost`; native ones may `take`
# frames in place.

from libc.stdint cimport uint8_t

from firearrow._native.wire.budget cimport Budget
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.leftover cimport Leftover
from firearrow._native.wire.plug cimport Plug
from firearrow._native.wire.shelf cimport Shelf

cdef class Conn:
    cdef object loop
    cdef object plans                     # where callbacks of this turn go: the loop or the engine
    cdef readonly object transport
    cdef Plug plug                        # the transport, if bytes may be given to it in place
    cdef list answers
    cdef Py_ssize_t answer_bytes
    cdef bytearray window
    cdef Shelf shelf
    cdef bytearray rest
    cdef Py_ssize_t rest_bytes
    cdef Py_ssize_t frame_bytes_max
    cdef Py_ssize_t high_water
    cdef Leftover leftover
    cdef Budget budget                    # None: nobody counts
    cdef Py_ssize_t unsent                # bytes that wait for the kernel
    cdef readonly Py_ssize_t held         # our part of the budget
    cdef readonly bint closed
    cdef bint reads_always
    cdef bint writing_paused
    cdef bint deaf
    cdef bint flush_planned
    cdef bint resume_planned
    cdef bint reading_paused
    cdef readonly long long received_frames
    cdef readonly double last_seen

    cdef int plug_in(self, plans, Plug plug) except -1
    cdef double now(self) except -1
    cdef uint8_t *place(self, Py_ssize_t start, Py_ssize_t *room) except NULL
    cdef void call_for(self) noexcept
    cdef int arrived(self, Py_ssize_t start, Py_ssize_t count, bint late) except -1
    cdef int take(self, const Frame *frame) except -1
    cdef bint choked(self) noexcept
    cdef int keep(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int widen(self) except -1
    cdef int move(self, const uint8_t *at, Py_ssize_t length, Py_ssize_t room) except -1
    cdef int leave_rest(self) except -1
    cdef Py_ssize_t deliver(self, const uint8_t *at, Py_ssize_t available) except -1
    cdef int balance(self, bint more) except -1
    cdef int account(self) except -1
    cdef int sent(self) except -1
