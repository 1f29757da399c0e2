"""FastConnection: offers each request to the fast path first (see fast_connection.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.base.memory cimport prefetch_write_range
from firearrow._native.wire.codes cimport FLAG_RESPONSE
from firearrow._native.wire.connection cimport DEFERRED, MAY_BE_CLOSED, STILL_OPEN, THROTTLED
from firearrow._native.wire.command cimport RemotingCommand, command_from
from firearrow._native.wire.header cimport header_fault, scan_header

from firearrow._native.wire.command import WireError

cdef enum:
    KEPT = 65536                          # a larger buffer is freed after its use
    CONNECTION_BYTES = 256                # of a connection, without the fields of subclasses


REASON_NAMES = (
    "fields", "body", "store", "topic", "properties", "size", "subscription", "offset", "no match",
    "access", "quota",
)


cdef class RequestCounts:
    """Requests of one kind of client on the fast path: sends whose headers matched a template, other sends,
    pulls."""

    def __cinit__(self, int language, int version):
        self.language = language
        self.version = version

    def left(self):
        # type: (...) -> dict[str, tuple[int, int]]
        """Reason -> sends and pulls that left the fast path for it; without zeros."""
        return {
            name: (self.sends_left[n], self.pulls_left[n])
            for n, name in enumerate(REASON_NAMES) if self.sends_left[n] or self.pulls_left[n]
        }


cdef class FastHandler:
    """The fast path for some requests."""

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1:
        return NOT_HANDLED

    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1:
        return NOT_HANDLED

    cdef int throttle_ended(self, FastConnection connection) except -1:
        """Its held requests may be answered again."""
        return 0


cdef class FastConnection(Connection):
    """A connection that offers each request to its FastHandler first.

    `fast_handler`: None sends all requests to `received`; `host`: the peer's address as in records."""

    # type: def __init__(
    # type:     self, loop: asyncio.AbstractEventLoop, *, frame_bytes_max: int = ..., high_water: int = ...,
    # type:     reads_always: bool = ..., budget: MemoryBudget | None = ...,
    # type: ) -> None: ...
    def __init__(self, loop, **limits):
        super().__init__(loop, **limits)
        self.out = Writer()
        self.host = b""
        self.language = self.version = -1

    cdef int handle_frame(self, const Frame *frame) except -1:
        cdef Header header
        cdef RemotingCommand command
        cdef int status
        cdef bint slow = False
        if (
            self.template is not None and self.fast_handler is not None
            and self.fast_handler.handle_templated(self, frame) == HANDLED
        ):
            return STILL_OPEN
        status = scan_header(frame.header, frame.header_bytes, frame.serializer, &header)
        if status < 0:
            raise WireError(header_fault(status))
        if header.flag & FLAG_RESPONSE == 0:
            self.language, self.version = header.language, header.version
            slow = not (is_send(header.code) or is_pull(header.code))
            if slow and not self.fair_queue.has_time():
                return DEFERRED
            if (
                self.fast_handler is not None
                and self.fast_handler.handle_frame(self, frame, &header) == HANDLED
            ):
                return STILL_OPEN
        command = command_from(frame, &header)
        command.since_ns = nanoseconds()
        self.received(command)
        if slow:
            self.fair_queue.spend(nanoseconds() - command.since_ns)
        return MAY_BE_CLOSED

    cdef void prefetch(self) noexcept:
        prefetch_write_range(<void *> self, CONNECTION_BYTES)
        if self.template is not None:
            self.template.prefetch()

    # ---- replies ----

    cdef int append_reply(self, const uint8_t *answers, Py_ssize_t length) except -1:
        """Append complete frames (copied); `flush` or the scheduled flush sends them."""
        self.out.put(answers, length)
        self.answer_bytes = self.out.size
        return 0

    def send(self, bytes frame not None):
        if self.closed:
            return
        self.append_reply(<const uint8_t *> PyBytes_AS_STRING(frame), len(frame))
        self.schedule_flush()

    cdef int schedule_flush(self) except -1:
        if not self.flush_planned:
            self.scheduler.call_soon(self.flush)
            self.flush_planned = True
        return 0

    cdef int write_through(self, const uint8_t *answers, Py_ssize_t length) except -1:
        """Like `append_reply` and `flush`, but without a copy if no earlier replies wait."""
        if self.raw_transport is None or self.out.size > 0 or self.closed:
            self.append_reply(answers, length)
            return self.flush_out()
        self.raw_transport.push(answers, length)
        return self.sent()

    def flush(self):
        self.flush_out()

    cdef int flush_out(self) except -1:
        if self.writing_paused & THROTTLED:
            return 0
        self.flush_planned = False
        if self.out.size == 0 or self.closed:
            return 0
        self.answer_bytes = 0
        try:
            if self.raw_transport is not None:
                self.raw_transport.push(self.out.data, self.out.size)
                self.out.size = 0
            else:
                self.transport.write(self.out.take())
        except MemoryError as error:
            self.abort_with(error)
            return 0
        self.sent()
        if self.out.capacity > KEPT:
            self.out = Writer()
        return 0

    # ---- throttling ----

    cpdef throttle(self, double delay_s):
        # type: (...) -> None
        """Send no reply and read no request for so long: its client is over a quota."""
        if self.closed or self.reading_stopped:
            return
        if self.throttle_timer is not None:
            if self.throttle_timer.when() >= self.loop.time() + delay_s:
                return
            self.throttle_timer.cancel()
        self.throttle_timer = self.loop.call_later(delay_s, self.end_throttle)
        self.writing_paused |= THROTTLED
        self.flush_planned = True
        self.update_flow_control(False)

    def end_throttle(self):
        if self.throttle_timer is None:
            return
        self.flush_throttled()
        self.update_flow_control(self.partial_bytes > 0)
        if self.fast_handler is not None and not self.closed:
            self.fast_handler.throttle_ended(self)

    cdef int flush_throttled(self) except -1:
        """End the throttling, and send what waited."""
        if self.throttle_timer is not None:
            self.throttle_timer.cancel()
            self.throttle_timer = None
            self.writing_paused &= ~THROTTLED
            self.flush_out()
        return 0

    def stop_reading(self):
        self.flush_throttled()
        super().stop_reading()

    def close(self):
        self.flush_throttled()
        super().close()

    cpdef abort_with(self, error):
        # type: (Exception) -> None
        """A reply failed: close the connection, since the client could not decode what follows."""
        self.out.size = self.answer_bytes = 0
        try:
            self.broken(f"a reply could not be sent: {type(error).__name__} {error}")
        finally:
            self.abort()

    def connection_lost(self, reason):
        self.out = Writer()
        if self.throttle_timer is not None:
            self.throttle_timer.cancel()
            self.throttle_timer = None
        super().connection_lost(reason)
