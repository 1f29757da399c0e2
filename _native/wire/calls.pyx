"""Calls: a connection of a client; passes answers to their waiters (see calls.pxd)."""

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
    cdef bint wanted(self) except -1:
        return not self.future.done()

    cdef int answered(self, const Frame *frame, const Header *header) except -1:
        self.future.set_result(command_from(frame, header))
        return 0

    cdef int failed(self, object error) except -1:
        self.future.set_exception(error)
        return 0


cdef class Calls(Conn):
    def __init__(self, loop, *, pending_max=65535):
        super().__init__(loop, reads_always=True)
        self.pending_calls = {}
        self.pending_max = pending_max

    # ---- for subclasses ----

    def failure(self, kind, reason=None):
        raise NotImplementedError

    def left(self):
        """The connection is closed and every waiter has failed."""

    # ---- requests ----

    def call(self, RemotingCommand command not None, double timeout_s):
        cdef Waiter waiter
        future = self.loop.create_future()
        refusal = self.refusal()
        if refusal is not None:
            future.set_exception(refusal)
            return future
        waiter = Waiter.__new__(Waiter)
        waiter.future = future
        command.opaque = self.number()
        self.post(command.opaque, command.encode(), waiter, timeout_s)
        return future

    def oneway(self, RemotingCommand command not None):
        command.opaque = self.number()
        self.send(command.encode())

    def next_opaque(self):
        return self.number()

    @property
    def pending(self):
        return len(self.pending_calls)

    def retire(self):
        """Take no more requests; close once those in flight are answered."""
        self.retired = True
        self.close_if_done()

    def close_if_done(self):
        if self.retired and not self.pending_calls:
            self.close()

    cdef int32_t number(self) noexcept:
        self.last_opaque = 1 if self.last_opaque == 0x7FFFFFFF else self.last_opaque + 1
        return self.last_opaque

    cdef object refusal(self):
        """Why nothing more can be sent, or None."""
        if self.closed:
            return self.failure(Failure.CLOSED)
        if len(self.pending_calls) >= self.pending_max:
            return self.failure(Failure.FULL)
        return None

    cdef int post(self, int32_t opaque, bytes frame, Waiter waiter, double timeout_s) except -1:
        """Send the frame; `waiter` gets its answer. A single frame leaves at once, several of a turn
        together."""
        cdef double now = self.loop.time()
        waiter.deadline = now + timeout_s
        if self.sweep is None:
            self.earliest = waiter.deadline
            self.sweep = self.loop.call_later(TICK, self.expire)
        elif waiter.deadline < self.earliest:
            self.earliest = waiter.deadline
        if self.pending_calls or self.flush_planned:
            self.pending_calls[opaque] = waiter
            self.send(frame)
        else:
            self.pending_calls[opaque] = waiter
            self.last_seen = now
            self.transport.write(frame)
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
        if waiter is not None and waiter.wanted():
            try:
                waiter.answered(frame, &header)
            except WireError:
                self.pending_calls[header.opaque] = waiter
                raise
            except Exception as error:
                self.loop.call_exception_handler(
                    {"message": "the waiter of an answer failed", "exception": error}
                )
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
            self.fail(waiter, self.failure(Failure.LOST, reason))
        self.left()

    def expire(self):
        """Fail late calls and drop cancelled ones."""
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
            if waiter.deadline <= now or not waiter.wanted():
                over.append(opaque)
            elif waiter.deadline < self.earliest:
                self.earliest = waiter.deadline
        for opaque in over:
            waiter = self.pending_calls.pop(opaque, None)
            if waiter is not None:
                self.fail(waiter, self.failure(Failure.LATE))
        return 0

    cdef int fail(self, Waiter waiter, object error) except -1:
        try:
            if waiter.wanted():
                waiter.failed(error)
        except Exception as fault:
            self.loop.call_exception_handler(
                {"message": "the waiter of an answer failed", "exception": fault}
            )
        return 0
