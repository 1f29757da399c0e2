"""Calls: a connection of a client; answers go to who waits for them (see calls.pxd)."""

import enum


from firearrow._native.wire.codes cimport FLAG_RESPONSE
from firearrow._native.wire.command cimport RemotingCommand, command_from
from firearrow._native.wire.header cimport header_fault, scan_header

from firearrow._native.wire.command import WireError

TICK_S = 0.05
cdef double TICK = TICK_S


class Failure(enum.Enum):
    CLOSED = "the connection is closed"
    LOST = "connection lost"
    LATE = "no answer in time"
    FULL = "too many requests unanswered"


cdef class Waiter:
    """Whose answer is the whole command."""

    cdef object answer_of(self, const Frame *frame, const Header *header):
        return command_from(frame, header)


cdef class Calls(Conn):
    def __init__(self, loop, *, pending_max=65535):
        super().__init__(loop, reads_always=True)
        self.pending_calls = {}
        self.pending_max = pending_max

    # ---- for subclasses ----

    def failure(self, kind, reason=None):
        raise NotImplementedError

    def left(self):
        """The connection is gone and everybody who waited was told."""

    # ---- requests ----

    def call(self, RemotingCommand command not None, double timeout_s):
        cdef Waiter waiter
        future = self.loop.create_future()
        if not self.refuse(future):
            waiter = Waiter.__new__(Waiter)
            waiter.future = future
            command.opaque = self.number()
            self.send(command.encode())
            self.wait_for(command.opaque, waiter, timeout_s)
        return future

    def oneway(self, RemotingCommand command not None):
        command.opaque = self.number()
        self.send(command.encode())

    @property
    def pending(self):
        return len(self.pending_calls)

    def retire(self):
        """Take no more requests; close once those on the way are answered."""
        self.retired = True
        self.close_if_done()

    def close_if_done(self):
        if self.retired and not self.pending_calls:
            self.close()

    cdef int32_t number(self) noexcept:
        self.last_opaque = 1 if self.last_opaque == 0x7FFFFFFF else self.last_opaque + 1
        return self.last_opaque

    cdef bint refuse(self, object future) except -1:
        """Whether nothing more can be sent; then the future says so."""
        if self.closed:
            future.set_exception(self.failure(Failure.CLOSED))
        elif len(self.pending_calls) >= self.pending_max:
            future.set_exception(self.failure(Failure.FULL))
        else:
            return False
        return True

    cdef int wait_for(self, int32_t opaque, Waiter waiter, double timeout_s) except -1:
        waiter.deadline = self.loop.time() + timeout_s
        if self.sweep is None:
            self.earliest = waiter.deadline
            self.sweep = self.loop.call_later(TICK, self.expire)
        elif waiter.deadline < self.earliest:
            self.earliest = waiter.deadline
        self.pending_calls[opaque] = waiter
        return 0

    # ---- answers ----

    cdef int take(self, const Frame *frame) except -1:
        cdef Header header
        cdef Waiter waiter
        cdef int status = scan_header(frame.header, frame.header_bytes, frame.serializer, &header)
        if status < 0:
            raise WireError(header_fault(status))
        if not header.flag & FLAG_RESPONSE:
            self.received(command_from(frame, &header))
            return 0
        waiter = self.pending_calls.pop(header.opaque, None)
        if waiter is not None and not waiter.future.done():
            try:
                answer = waiter.answer_of(frame, &header)
            except WireError:
                self.pending_calls[header.opaque] = waiter
                raise
            waiter.future.set_result(answer)
        if self.retired:
            self.close_if_done()
        return 0

    def lost(self, reason):
        cdef Waiter waiter
        if self.sweep is not None:
            self.sweep.cancel()
            self.sweep = None
        waiting, self.pending_calls = self.pending_calls, {}
        for waiter in waiting.values():
            if not waiter.future.done():
                waiter.future.set_exception(self.failure(Failure.LOST, reason))
        self.left()

    def expire(self):
        """End the calls that are late, forget those that nobody waits for any more."""
        cdef double now = self.loop.time()
        self.sweep = None
        if now >= self.earliest or self.retired:
            self.end_late(now)
        if self.pending_calls:
            self.sweep = self.loop.call_later(TICK, self.expire)
        self.close_if_done()

    cdef int end_late(self, double now) except -1:
        cdef Waiter waiter
        cdef list over = []
        self.earliest = now + 3600
        for opaque, waiter in self.pending_calls.items():
            if waiter.deadline <= now or waiter.future.done():
                over.append(opaque)
            elif waiter.deadline < self.earliest:
                self.earliest = waiter.deadline
        for opaque in over:
            waiter = self.pending_calls.pop(opaque)
            if not waiter.future.done():
                waiter.future.set_exception(self.failure(Failure.LATE))
        return 0
