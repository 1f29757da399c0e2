"""GrpcStream: one gRPC call on a stream of HTTP/2 (see grpc_stream.pxd). StreamOwner: its session."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from firearrow._native.base.endian cimport get_i16, get_i32, put_i32
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    HEADER_OVERHEAD = 32                  # RFC 9113, 6.5.2
    ERROR_CANCEL = 8                      # RFC 9113, 7
    COMPRESSED = 1
    RESOURCE_EXHAUSTED = 8                # codes of gRPC
    UNIMPLEMENTED = 12

UNSENT_BYTES_MAX = UNSENT_MAX  # type: int
"""Once more than this waits for the client, a call that streams answers should wait as well."""


cdef class PlainCalls:
    """Takes calls without a Python object for each; for native code only."""

    cdef PlainCalls taker(self, GrpcStream stream):
        """The headers have come: what takes such a call, this or another one; None: it is not plain."""
        raise NotImplementedError

    cdef bint handle(self, GrpcStream stream, const uint8_t *at, Py_ssize_t length) except -1:
        """Handle its message; False: nothing has changed, and the call is accepted as any other."""
        raise NotImplementedError


cdef class StreamOwner:
    """The session of streams."""

    cdef int accept_call(self, GrpcStream stream) except -1:
        """Set the call of a stream whose headers have come."""
        raise NotImplementedError

    cdef int answer(self, GrpcStream stream) except -1:
        """The stream has more to send, or was finished."""
        raise NotImplementedError

    cdef int reset(self, GrpcStream stream, uint32_t error) except -1:
        raise NotImplementedError

    cdef int held_changed(self, Py_ssize_t more) except -1:
        """The number of bytes that the stream holds has grown by this."""
        raise NotImplementedError


cdef class GrpcStream:
    """One call. `call` gets `message(bytes)`, `half_closed()` and `cancelled()`; None: it was refused."""

    def __cinit__(self):
        self.unsent = []

    # ---- the headers of the request ----

    @property
    def path(self):
        # type: (...) -> str
        """Such as `/package.Service/Method`."""
        return self.headers.get(":path", "")

    @property
    def method(self):
        # type: (...) -> str
        """Of HTTP."""
        return self.headers.get(":method", "")

    @property
    def headers(self):
        # type: (...) -> dict[str, str]
        """With the pseudo-headers; of names that come twice, the last one."""
        if self.decoded is None:
            self.decoded = headers_of(self.head)
        return self.decoded

    # ---- its state ----

    @property
    def is_slow(self):
        # type: (...) -> bool
        """Whether so much waits for the client that no more should be sent now."""
        return self.unsent_bytes > UNSENT_MAX

    @property
    def is_open(self):
        # type: (...) -> bool
        """Whether something can still be sent."""
        return self.owner is not None and not self.finished

    # ---- answers ----

    cdef int answer_framed(self, const uint8_t *at, Py_ssize_t length) except -1:
        """Send one message, which has its prefix, and end the call with the status OK."""
        if self.owner is None or self.finished:
            return 0
        self.unsent.append(bytes_at(at, length))
        self.unsent_bytes += length
        self.hold(length)
        self.finished = True
        return self.owner.answer(self)

    def send(self, bytes message not None):
        # type: (...) -> None
        """Send one message; nothing happens once the call has ended."""
        cdef Py_ssize_t length = len(message)
        cdef bytes framed
        cdef uint8_t *to
        framed = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + length)
        to = <uint8_t *> PyBytes_AS_STRING(framed)
        to[0] = 0
        put_i32(to + 1, <int> length)
        memcpy(to + PREFIX_BYTES, PyBytes_AS_STRING(message), length)
        self.send_framed(framed)

    def send_framed(self, bytes messages not None):
        # type: (...) -> None
        """Send messages that have their prefixes, as they are."""
        if self.owner is None or self.finished:
            return
        self.unsent.append(messages)
        self.unsent_bytes += len(messages)
        self.hold(len(messages))
        self.owner.answer(self)

    def finish(self, int status=0, str reason=""):
        # type: (...) -> None
        """End the call with a gRPC status, after the messages that were sent."""
        if self.owner is None or self.finished:
            return
        self.finished = True
        self.status, self.reason = status, percent_encoded(reason)
        self.owner.answer(self)

    def reset(self, uint32_t error=ERROR_CANCEL):
        # type: (...) -> None
        """End the stream without a status."""
        if self.owner is not None:
            self.finished = True
            self.owner.reset(self, error)

    cdef Py_ssize_t take_unsent(self, uint8_t *to, Py_ssize_t capacity) noexcept:
        """Move unsent bytes to the buffer; returns their count."""
        cdef Py_ssize_t taken = 0, part, left
        cdef bytes message
        while taken < capacity and self.next < len(self.unsent):
            message = <bytes> self.unsent[self.next]
            left = PyBytes_GET_SIZE(message) - self.position
            part = min(left, capacity - taken)
            memcpy(to + taken, PyBytes_AS_STRING(message) + self.position, part)
            taken += part
            if part < left:
                self.position += part
                break
            self.unsent[self.next] = None
            self.next += 1
            self.position = 0
        if self.next == len(self.unsent) and self.next > 0:
            self.unsent.clear()
            self.next = 0
        self.unsent_bytes -= taken
        self.held -= taken                    # the session counts it itself
        return taken

    # ---- the request ----

    cdef int add_header(
        self, Writer head, const uint8_t *name, size_t length, const uint8_t *value, size_t value_length
    ) except -1:
        """Add it to the others: lengths of name and value (u16), name, value. 0: they are too long, or too many."""
        self.header_bytes += length + value_length + HEADER_OVERHEAD
        self.header_count += 1
        if self.header_bytes > HEADER_BYTES_MAX or self.header_count > HEADERS_MAX:
            return 0
        self.hold(length + value_length + HEADER_MEMORY)
        head.put_i16(<int16_t> length)
        head.put_i16(<int16_t> value_length)
        head.put(name, length)
        head.put(value, value_length)
        return 1

    cdef int half_closed(self) except -1:
        """The client sends no more."""
        if self.plain_state == WAITS_FOR_MESSAGE and not self.finished:
            self.accept_late()
        if self.call is not None:
            self.call.half_closed()
        return 0

    cdef int accept_late(self) except -1:
        """It needs its method."""
        self.plain_state = NOT_PLAIN
        self.plain = None
        return self.owner.accept_call(self)

    cdef int data(self, const uint8_t *at, Py_ssize_t length) except -1:
        """The bytes of a DATA frame, or some of them."""
        cdef Py_ssize_t size
        cdef int messages = self.messages
        while length > 0 and not self.refused and not self.finished and self.owner is not None:
            if self.messages - messages > MESSAGES_MAX:
                return self.refuse(RESOURCE_EXHAUSTED, f"more than {MESSAGES_MAX} messages in one DATA frame")
            if self.partial is not None:
                size = self.keep(at, length)
                at += size
                length -= size
                continue
            size = PREFIX_BYTES + self.claimed(at) if length >= PREFIX_BYTES else length + 1
            if self.refused:
                return 0
            if length < size:
                self.partial = Writer()
                continue
            self.deliver(at + PREFIX_BYTES, size - PREFIX_BYTES)
            at += size
            length -= size
        return 0

    cdef int hold(self, Py_ssize_t more) except -1:
        self.held += more
        return self.owner.held_changed(more)

    cdef int deliver(self, const uint8_t *at, Py_ssize_t length) except -1:
        self.messages += 1
        if self.plain_state != NOT_PLAIN:
            if self.plain_state == TAKEN:     # a call of one message: what follows is dropped
                return 0
            if self.plain.handle(self, at, length):
                self.plain_state = TAKEN
                return 0
            self.accept_late()
        self.hold(length - self.message_bytes)
        self.message_bytes = length
        if self.call is not None:
            self.call.message(bytes_at(at, length))
        return 0

    cdef int keep(self, const uint8_t *at, Py_ssize_t length) except -1:
        """Add bytes to the partial message; deliver it once it is whole. Returns how many were its own."""
        cdef Writer partial = self.partial
        cdef Py_ssize_t missing = PREFIX_BYTES - partial.size
        cdef Py_ssize_t taken
        if missing > 0:
            taken = min(missing, length)
            partial.put(at, taken)
            if partial.size == PREFIX_BYTES and self.claimed(partial.data) == 0:
                self.partial = None
                if not self.refused:
                    self.deliver(NULL, 0)
            return <int> taken
        missing = PREFIX_BYTES + self.claimed(partial.data) - partial.size
        if self.refused:
            return <int> length
        taken = min(missing, length)
        partial.put(at, taken)
        if taken < missing:
            self.hold(taken)
            return <int> taken
        self.hold(taken - (partial.size - PREFIX_BYTES))
        self.partial = None
        self.deliver(partial.data + PREFIX_BYTES, partial.size - PREFIX_BYTES)
        return <int> taken

    cdef Py_ssize_t claimed(self, const uint8_t *prefix) except -1:
        """The message's length; `refused` is set if it may not be read."""
        cdef uint32_t length = <uint32_t> get_i32(prefix + 1)
        if prefix[0] & COMPRESSED:
            return self.refuse(
                UNIMPLEMENTED, "messages with grpc-encoding are not supported: send them uncompressed"
            )
        if length > self.message_bytes_max:
            return self.refuse(
                RESOURCE_EXHAUSTED, f"gRPC message exceeds maximum size {self.message_bytes_max}: {length}"
            )
        return length

    def refuse(self, int status, str reason):
        # type: (...) -> int
        """End the call before its request was read."""
        self.refused = True
        self.partial = None
        self.finish(status, reason)
        return 0

    cdef int closed(self) except -1:
        """HTTP/2 has closed the stream."""
        cdef object call = self.call
        cdef bint sent = self.finished and self.unsent_bytes == 0
        self.hold(-self.held)
        self.owner = None
        self.call = self.partial = self.plain = self.caller = None
        self.unsent.clear()
        self.next = self.unsent_bytes = 0
        self.finished = True
        if call is not None and not sent:
            call.cancelled()
        return 0


cdef dict headers_of(bytes head):
    """Names and values; None: there are none yet."""
    cdef dict found = {}
    cdef const char *at
    cdef const char *end
    cdef Py_ssize_t length, value_length
    if head is None:
        return found
    at = PyBytes_AS_STRING(head)
    end = at + PyBytes_GET_SIZE(head)
    while at < end:
        length, value_length = <uint16_t> get_i16(<uint8_t *> at), <uint16_t> get_i16(<uint8_t *> at + 2)
        at += HEADER_LENGTHS
        name = PyUnicode_DecodeLatin1(at, length, NULL)
        found[name] = PyUnicode_DecodeLatin1(at + length, value_length, NULL)
        at += length + value_length
    return found


cdef inline bytes bytes_at(const uint8_t *at, Py_ssize_t length):
    return PyBytes_FromStringAndSize(<const char *> at, length)


cdef bytes percent_encoded(str text):
    """As `grpc-message` is sent: bytes of UTF-8 that are not printable, and the percent sign, as `%XX`."""
    cdef bytes raw
    if not text:
        return b""
    raw = text.encode("utf-8", "replace")
    if raw.isascii() and text.isprintable() and b"%" not in raw:
        return raw
    return b"".join([b"%c" % byte if 32 <= byte < 127 and byte != 37 else b"%%%02X" % byte for byte in raw])
