# GrpcStream: one gRPC call on a stream of HTTP/2, without its socket: messages in, messages and a status
# out.
#
#   message   +---+---------+-----------+
#             | C | L u32   | L bytes   |   C: 1 if compressed, which is refused
#             +---+---------+-----------+
#
# A message that came in one piece is delivered from where it was received; parts collect in `partial`,
# whose capacity grows with what has come, never with what L claims. Answers wait in `unsent` until HTTP/2's
# windows take them. What comes once the status was given is dropped, and so are trailers of the client.
#
# `held`, of which the owner knows: what the stream has in memory, headers, `partial`, `unsent`, and the last message,
# which a call may keep until it ends.
#
# Ownership: the session owns the stream until HTTP/2 has closed it; `call` is whom it belongs to in Python,
# and gets `message(bytes)`, `half_closed()` when the client sends no more, and `cancelled()` once when the
# stream ends before its status was given and what it had to send was sent. StreamOwner: the session, for the
# stream. Thread: the loop's.
#
# PlainCalls: calls without a Python object. `taker`, once the headers have come: whose this may be; then no call is
# accepted before its message has come, which goes to `handle` of that. It takes it, and gives the answer by
# `answer_framed`, at once or later; or it has changed nothing, and the call is accepted as any other.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    PREFIX_BYTES = 5
    STREAM_BYTES = 4096                   # of memory that an open stream counts for,
    HEADER_MEMORY = 256                   # and each of its headers, beside its characters
    HEADERS_MAX = 128                     # of a request
    HEADER_BYTES_MAX = 16384              # of a request: names, values and 32 for each, as HTTP/2 counts
    MESSAGES_MAX = 64                     # of one DATA frame, which has at most 16 KiB
    HEADER_LENGTHS = 4                    # bytes before a name in `head`
    UNSENT_MAX = 1048576                  # bytes that wait for the peer; then their producer should pause

cdef class PlainCalls:
    cdef readonly int64_t calls  # That were handled here.

    cdef PlainCalls taker(self, GrpcStream stream)
    cdef bint handle(self, GrpcStream stream, const uint8_t *at, Py_ssize_t length) except -1

cdef enum PlainState:
    NOT_PLAIN                             # or not known yet
    WAITS_FOR_MESSAGE
    TAKEN

cdef class StreamOwner:
    cdef int accept_call(self, GrpcStream stream) except -1
    cdef int answer(self, GrpcStream stream) except -1
    cdef int reset(self, GrpcStream stream, uint32_t error) except -1
    cdef int held_changed(self, Py_ssize_t more) except -1

cdef class GrpcStream:
    cdef StreamOwner owner                # None once it is closed
    cdef int32_t id
    cdef bytes head                       # the headers of the request, as `add_header` has them; None: not whole yet
    cdef dict decoded                     # the same as text; None: not asked for
    cdef PlainCalls plain                 # None: NOT_PLAIN
    cdef PlainState plain_state
    cdef object caller                    # of a plain call, for its PlainCalls
    cdef public object call  # type: object  # Gets what happens (see grpc_stream.pxd).
    cdef Py_ssize_t held
    cdef Py_ssize_t header_bytes
    cdef int header_count
    cdef Writer partial                   # None: no part of a message has come
    cdef list unsent                      # bytes objects, each a message with its prefix; from `next` on
    cdef Py_ssize_t next, position        # of `unsent`, and in that one
    cdef Py_ssize_t unsent_bytes
    cdef readonly bint finished  # The status was given: nothing more can be sent.
    cdef bint begun                       # the response's headers were submitted
    cdef bint trailed                     # and the trailers
    cdef bint refused                     # its request is dropped: a reset would overtake the status
    cdef int status
    cdef bytes reason
    cdef public Py_ssize_t message_bytes_max  # type: int  # Of a request; the call may lower it.
    cdef Py_ssize_t message_bytes         # of the last one
    cdef int messages                     # that were delivered

    cdef int add_header(
        self, Writer head, const uint8_t *name, size_t length, const uint8_t *value, size_t value_length
    ) except -1
    cdef int half_closed(self) except -1
    cdef int accept_late(self) except -1
    cdef int answer_framed(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int data(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int hold(self, Py_ssize_t more) except -1
    cdef int deliver(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int keep(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef Py_ssize_t claimed(self, const uint8_t *prefix) except -1
    cdef Py_ssize_t take_unsent(self, uint8_t *to, Py_ssize_t capacity) noexcept
    cdef int closed(self) except -1
