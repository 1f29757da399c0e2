# Conn: one peer, on a transport of the loop or on an engine's socket; both feed the same frame loop.
#
# Ownership: all connections of a thread receive into one shared window. What a read leaves of a partial frame
# is copied to the connection's own `rest`. Its capacity grows with the bytes received, never with what a
# length word claims; a larger buffer is used if the shelf has one. Commands own their data, so nothing points
# into window or rest when a call returns.
#
# Order: a read passes every whole frame to `received`, at most FRAMES_A_TURN of them, then other connections
# get their turn. Answers collect in `answers` and leave as one write. While the peer does not read its
# answers (`congested`), its requests are not read either: memory is bounded by the transport's high-water
# mark and the answers of one turn. Partial frames and bytes that the kernel does not take count in the shared
# `budget`. A client `reads_always`: if both sides stopped reading, neither could send.
#
# Units: bytes; `last_seen` is the loop's time in seconds. Thread: the loop's. Subclasses (server, client)
# override `received` and `lost`; native ones may `take` frames in place.

from libc.stdint cimport uint8_t

from firearrow._native.wire.budget cimport Budget
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.leftover cimport Leftover
from firearrow._native.wire.plug cimport Plug
from firearrow._native.wire.shelf cimport Shelf

cdef class Conn:
    cdef object loop
    cdef object plans                     # runs callbacks of this turn: the loop or the engine
    cdef readonly object transport
    cdef Plug plug                        # the transport, if it takes bytes in place
    cdef list answers
    cdef Py_ssize_t answer_bytes
    cdef bytearray window
    cdef Shelf shelf
    cdef bytearray rest
    cdef Py_ssize_t rest_bytes
    cdef Py_ssize_t frame_bytes_max
    cdef Py_ssize_t high_water
    cdef Leftover leftover
    cdef Budget budget                    # None: not limited
    cdef Py_ssize_t unsent                # bytes not yet taken by the kernel
    cdef readonly Py_ssize_t held         # this connection's part of the budget
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
