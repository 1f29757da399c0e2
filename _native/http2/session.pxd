# Http2Session: HTTP/2 on a connection, by libnghttp2: bytes in, calls out, and back.
#
#   feed      bytes of the connection, in slices: nghttp2 decodes them and calls back: headers, data, end of a
#             stream
#   flush     once at the end of a pass: what nghttp2 has to send, and the messages that its windows admit
#
# The callbacks run inside nghttp2's `mem_recv` and `mem_send`. A call that answers there only queues the
# answer: `flush` runs later. An exception in a callback is kept in `failure`, ends `feed` and with it the
# connection. nghttp2 may not be called from there to receive or send: a connection that is closed in a callback
# closes without a last frame (`inside`), and its loss is reported in a later iteration of the loop.
#
# Ownership: the connection owns the session, which owns its streams; nghttp2 has a borrowed pointer to
# each, until it closes the stream. All sessions of a thread send from one buffer. `held`: the bytes that
# streams hold, which count in the connection's budget.
#
# Abuse: open streams, headers, CONTINUATION and SETTINGS frames, resets and malformed requests are bounded
# by what is below, frames that ask for an answer by nghttp2. A stream that ends with an error counts as a reset
# of the peer, which can make us reset its streams, too. The CPU time of a slice, which has few calls,
# counts as that of a slow request in the fair queue, so that other connections are served between two slices.
# Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from firearrow._native.http2.grpc_stream cimport GrpcStream, PlainCalls, StreamOwner
from firearrow._native.http2.nghttp2 cimport nghttp2_nv, nghttp2_session
from firearrow._native.wire.connection cimport ByteProtocol, Connection
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    STREAMS_MAX = 4096                    # open at once; a consumer has one for each queue that it receives
    CONTINUATIONS_MAX = 4                 # frames of one header block; libraries since 2024 allow 8
    RESETS_MAX = 1000                     # streams that may end with an error at once, and
    RESETS_PER_S = 33                     # in each second after that, as nghttp2 limits them
    SETTINGS_MAX = 100                    # frames of the peer at once, and
    SETTINGS_PER_S = 10                   # in each second after that; each is work for every open stream
    FAULTS_MAX = 100                      # requests that are refused for their form; then the connection ends
    SLICE_BYTES = 16384                   # read at once, or
    SLICE_CALLS = 16                      # new streams and messages; then other connections are served
    TURN_NS = 2000000                     # of one connection
    STREAM_WINDOW = 1048576               # what a peer may send before it has to wait, for each stream
    CONNECTION_WINDOW = 4194304           # and for all of them

cdef class SessionStreams(StreamOwner):
    cdef Http2Session session             # None once the connection is lost

cdef struct Allowance:                    # what a peer may do: at once, and more in each second
    double left
    double at                             # when it was counted, in s


cdef class Http2Session(ByteProtocol):
    cdef Connection connection
    cdef object accept                    # called with each new stream: returns its call
    cdef PlainCalls plain                 # None: all are accepted
    cdef GrpcStream newest                # whose headers are being received, or were the last
    cdef Writer head                      # its headers
    cdef nghttp2_session *session
    cdef SessionStreams owner
    cdef dict streams                     # id → GrpcStream
    cdef object failure                   # of a callback
    cdef Py_ssize_t message_bytes_max
    cdef bint flush_planned
    cdef bint ending                      # closed once everything was sent
    cdef bint inside                      # nghttp2 is receiving or sending
    cdef int calls                        # of this slice
    cdef int continuations                # of the header block that is being received
    cdef int faults
    cdef Allowance resets                 # see RESETS_MAX
    cdef Allowance settings               # frames; see SETTINGS_MAX
    cdef Py_ssize_t held

    cdef int begin(self) except -1
    cdef Py_ssize_t receive(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int plan_flush(self) except -1
    cdef int send_all(self) except -1
    cdef int report(self) except -1
    cdef int check(self, ssize_t result) except -1
    cdef int begin_stream(self, int32_t stream_id) except -1
    cdef int request(self, GrpcStream stream) except -1
    cdef int accept_call(self, GrpcStream stream) except -1
    cdef int fault(self, str what) except -1
    cdef int count_reset(self) except -1
    cdef int count_settings(self) except -1
    cdef int respond(self, GrpcStream stream) except -1
    cdef int trail(self, GrpcStream stream) except -1
    cdef int submit_status(
        self, GrpcStream stream, nghttp2_nv *headers, int count, bint is_trailer
    ) except -1
    cdef int push(self) except -1
    cdef int end_stream(self, int32_t stream_id, uint32_t error) except -1
