"""Lane and Front: the fast path for requests, and the connection that offers them (see lane.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING

from firearrow._native.base.prefetch cimport prefetch_write_range
from firearrow._native.wire.codes cimport FLAG_RESPONSE
from firearrow._native.wire.command cimport command_from
from firearrow._native.wire.header cimport header_fault, scan_header

from firearrow._native.wire.command import WireError

cdef enum:
    KEPT = 65536                          # a larger buffer is freed after its use
    FRONT_BYTES = 256                     # of a connection, without the fields of subclasses


cdef class Lane:
    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1:
        return NOT_MINE

    cdef int take_alike(self, Front front, const Frame *frame) except -1:
        return NOT_MINE


cdef class Front(Conn):
    def __init__(self, loop, **limits):
        super().__init__(loop, **limits)
        self.out = Writer()
        self.host = b""

    cdef int take(self, const Frame *frame) except -1:
        cdef Header header
        cdef int status
        if self.pattern is not None and self.lane is not None and self.lane.take_alike(self, frame) == TAKEN:
            return 1
        status = scan_header(frame.header, frame.header_bytes, frame.serializer, &header)
        if status < 0:
            raise WireError(header_fault(status))
        if self.lane is not None and header.flag & FLAG_RESPONSE == 0:
            if self.lane.take(self, frame, &header) == TAKEN:
                return 1
        self.received(command_from(frame, &header))
        return 0

    cdef void call_for(self) noexcept:
        prefetch_write_range(<void *> self, FRONT_BYTES)
        if self.pattern is not None:
            self.pattern.call_for()

    # ---- answers ----

    cdef int put(self, const uint8_t *answers, Py_ssize_t length) except -1:
        """Whole frames, copied; `flush` or a planned flush sends them."""
        self.out.put(answers, length)
        self.answer_bytes = self.out.size
        return 0

    def send(self, bytes frame not None):
        if self.closed:
            return
        self.put(<const uint8_t *> PyBytes_AS_STRING(frame), len(frame))
        self.plan()

    cdef int plan(self) except -1:
        if not self.flush_planned:
            self.plans.call_soon(self.flush)
            self.flush_planned = True
        return 0

    cdef int pass_on(self, const uint8_t *answers, Py_ssize_t length) except -1:
        """As `put` and `flush`, but without a copy if no answers wait before them."""
        if self.plug is None or self.out.size > 0 or self.closed:
            self.put(answers, length)
            return self.let_out()
        self.plug.push(answers, length)
        return self.sent()

    def flush(self):
        self.let_out()

    cdef int let_out(self) except -1:
        self.flush_planned = False
        if self.out.size == 0 or self.closed:
            return 0
        self.answer_bytes = 0
        try:
            if self.plug is not None:
                self.plug.push(self.out.data, self.out.size)
                self.out.size = 0
            else:
                self.transport.write(self.out.take())
        except MemoryError as error:
            self.cut(error)
            return 0
        self.sent()
        if self.out.capacity > KEPT:
            self.out = Writer()
        return 0

    cpdef cut(self, error):
        """An answer failed, or only a part of it was sent: the client could not decode what follows."""
        self.out.size = self.answer_bytes = 0
        try:
            self.broken(f"an answer could not be sent: {type(error).__name__} {error}")
        finally:
            self.abort()

    def connection_lost(self, reason):
        self.out = Writer()
        super().connection_lost(reason)
