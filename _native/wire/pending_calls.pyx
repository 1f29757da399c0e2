"""PendingCalls: a client's connection; passes responses to their waiters (see pending_calls.pxd)."""

import enum


from firearrow._native.wire.codes cimport FLAG_RESPONSE
from firearrow._native.wire.command cimport RemotingCommand, command_from
from firearrow._native.wire.header cimport header_fault, scan_header

from firearrow._native.wire.command import WireError

TICK_S = 0.05  # type: float
"""Precision of time-outs."""
cdef double TICK = TICK_S
SILENT_S = 2.0  # type: float
"""Shortest silence, with calls that are late, after which a connection is closed."""
cdef double SILENT = SILENT_S
cdef double SUSPENDED = 0.5               # a sweep so late: our process was stopped, not the peer


class Failure(enum.Enum):
    """Why a call got no response; the value states it in words."""
    CLOSED = "the connection is closed"
    LOST = "connection lost"
    LATE = "no answer in time"
    FULL = "too many requests unanswered"


cdef class CallWaiter:
    cdef bint is_waiting(self) except -1:
        return not self.future.done()

    cdef int response_received(self, const Frame *frame, const Header *header) except -1:
        self.future.set_result(command_from(frame, header))
        return 0

    cdef int call_failed(self, object error) except -1:
        self.future.set_exception(error)
        return 0


cdef class PendingCalls(Connection):
    """A client's connection. `failure` of a subclass creates the exception of a call without a response."""

    def __init__(self, loop, *, pending_max=65535):
        # type: (asyncio.AbstractEventLoop, int) -> None
        super().__init__(loop, reads_always=True)
        self.pending_calls = {}
        self.pending_max = pending_max

    # ---- for subclasses ----

    def failure(self, kind, reason=None):
        # type: (Failure, Exception | None) -> BaseException
        raise NotImplementedError

    def left(self):
        # type: (...) -> None
        """The connection is closed and every waiter has failed."""

    def silent(self, seconds):
        # type: (float) -> None
        """Calls were late and nothing was received for so long; the connection is closed after this."""

    # ---- requests ----

    def call(self, RemotingCommand command not None, double timeout_s):
        # type: (...) -> asyncio.Future[RemotingCommand]
        """Send it; returns the response, whatever its code. Fails with `failure`'s exception."""
        cdef CallWaiter waiter
        future = self.loop.create_future()
        refusal = self.too_many_error()
        if refusal is not None:
            future.set_exception(refusal)
            return future
        waiter = CallWaiter.__new__(CallWaiter)
        waiter.future = future
        command.opaque = self.number()
        self.post(command.opaque, command.encode(), waiter, timeout_s)
        return future

    def oneway(self, RemotingCommand command not None):
        # type: (...) -> None
        command.opaque = self.number()
        self.send(command.encode())

    def next_opaque(self):
        # type: (...) -> int
        """The next request number, for a frame encoded elsewhere."""
        return self.number()

    @property
    def pending(self):
        # type: (...) -> int
        return len(self.pending_calls)

    def retire(self):
        # type: (...) -> None
        """Take no more requests; close once those in flight are answered."""
        self.retired = True
        self.close_if_done()

    def close_if_done(self):
        if self.retired and not self.pending_calls:
            self.close()

    cdef int32_t number(self) noexcept:
        self.last_opaque = 1 if self.last_opaque == 0x7FFFFFFF else self.last_opaque + 1
        return self.last_opaque

    cdef object too_many_error(self):
        """Why nothing more can be sent, or None."""
        if self.closed:
            return self.failure(Failure.CLOSED)
        if len(self.pending_calls) >= self.pending_max:
            return self.failure(Failure.FULL)
        return None

    cdef int post(self, int32_t opaque, bytes frame, CallWaiter waiter, double timeout_s) except -1:
        """Send the frame; `waiter` gets the response. A single frame leaves at once, several of one pass
        together."""
        cdef double now = self.loop.time()
        waiter.posted = now
        waiter.deadline = now + timeout_s
        waiter.frames_before = self.received_frames
        if self.expiry_timer is None:
            self.earliest = waiter.deadline
            self.plan_sweep(now)
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

    # ---- responses ----

    cdef int handle_frame(self, const Frame *frame) except -1:
        cdef Header header
        cdef CallWaiter waiter
        cdef int status = scan_header(frame.header, frame.header_bytes, frame.serializer, &header)
        if status < 0:
            raise WireError(header_fault(status))
        if not header.flag & FLAG_RESPONSE:
            self.received(command_from(frame, &header))
            return 0
        waiter = self.pending_calls.pop(header.opaque, None)
        if waiter is not None and waiter.is_waiting():
            try:
                waiter.response_received(frame, &header)
            except WireError:
                self.pending_calls[header.opaque] = waiter
                raise
            except Exception as error:
                self.loop.call_exception_handler(
                    {"message": "the waiter of a response failed", "exception": error}
                )
        if self.retired:
            self.close_if_done()
        return 0

    def lost(self, reason):
        cdef CallWaiter waiter
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
            self.expiry_timer = None
        waiting, self.pending_calls = self.pending_calls, {}
        for waiter in waiting.values():
            self.fail(waiter, self.failure(Failure.LOST, reason))
        self.left()

    def expire(self):
        """Fail late calls and drop cancelled ones."""
        cdef double now = self.loop.time()
        cdef bint suspended = now > self.next_sweep + SUSPENDED
        self.expiry_timer = None
        if (now >= self.earliest or self.retired) and not suspended:  # else read first what has arrived
            self.expire_calls(now)
        if self.pending_calls and not self.closed:
            self.plan_sweep(now)
        self.close_if_done()

    cdef int plan_sweep(self, double now) except -1:
        self.next_sweep = now + TICK
        self.expiry_timer = self.loop.call_later(TICK, self.expire)
        return 0

    cdef int expire_calls(self, double now) except -1:
        cdef CallWaiter waiter
        cdef list over = []
        cdef double unheard = now
        self.earliest = now + 3600
        for opaque, waiter in self.pending_calls.items():
            if waiter.deadline <= now or not waiter.is_waiting():
                over.append(opaque)
                if waiter.deadline <= now and waiter.frames_before == self.received_frames:
                    unheard = min(unheard, waiter.posted)
            elif waiter.deadline < self.earliest:
                self.earliest = waiter.deadline
        if unheard < now:
            self.check_silence(unheard, now)
        for opaque in over:
            waiter = self.pending_calls.pop(opaque, None)
            if waiter is not None:
                self.fail(waiter, self.failure(Failure.LATE))
        return 0

    cdef int check_silence(self, double posted, double now) except -1:
        """A request of `posted` is late, and no frame has come since."""
        if self.silent_since == 0 or (self.received_frames, self.partial_bytes) != (
            self.silent_frames, self.silent_partial
        ):
            # A part of a frame may have come just now.
            self.silent_since = posted if self.partial_bytes == 0 else now
            self.silent_frames, self.silent_partial = self.received_frames, self.partial_bytes
        if now - self.silent_since >= SILENT and not self.retired:
            self.retired = True
            self.silent(now - self.silent_since)
            self.abort()
        return 0

    cdef int fail(self, CallWaiter waiter, object error) except -1:
        try:
            if waiter.is_waiting():
                waiter.call_failed(error)
        except Exception as fault:
            self.loop.call_exception_handler(
                {"message": "the waiter of a response failed", "exception": fault}
            )
        return 0
