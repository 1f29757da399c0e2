"""Http2Session: HTTP/2 on a connection (see session.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.http2.grpc_stream cimport (
    HEADER_BYTES_MAX, HEADERS_MAX, STREAM_BYTES, WAITS_FOR_MESSAGE, GrpcStream, PlainCalls, StreamOwner,
)
from firearrow._native.http2.nghttp2 cimport (
    Nghttp2, nghttp2_data_provider, nghttp2_data_source, nghttp2_frame, nghttp2_frame_hd, nghttp2_goaway,
    nghttp2_load, nghttp2_nv, nghttp2_option, nghttp2_session, nghttp2_session_callbacks,
    nghttp2_settings_entry,
)
from firearrow._native.wire.command import WireError
from firearrow._native.wire.connection cimport ByteProtocol, Connection
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:                                # nghttp2/nghttp2.h
    DATA = 0
    HEADERS = 1
    SETTINGS = 4
    GOAWAY = 7
    CONTINUATION = 9
    FLAG_END_STREAM = 1
    FLAG_ACK = 1
    SETTINGS_MAX_STREAMS = 3
    SETTINGS_WINDOW = 4
    SETTINGS_MAX_HEADERS = 6
    DATA_EOF = 1
    DATA_NO_END_STREAM = 2
    DEFERRED = -508
    PAUSE = -526
    RESET_STREAM = -521                   # NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    NO_MEMORY = -901
    FAILED = -902                         # NGHTTP2_ERR_CALLBACK_FAILURE
    NO_ERROR = 0                          # RFC 9113, 7

cdef enum:
    SEND_BYTES = 65536                    # given to the connection at once
    REFUSED_BYTES = 65536                 # of a request that is refused in any case
    UNIMPLEMENTED = 12                    # of gRPC

cdef Nghttp2 nghttp2
cdef nghttp2_session_callbacks *callbacks = NULL
cdef nghttp2_option *options = NULL
cdef Writer outgoing = Writer()           # empty between two calls


class Http2Unavailable(Exception):
    """libnghttp2 cannot be used; the text states what to install."""


def load():
    # type: () -> None
    """Load libnghttp2, at the first HTTP/2 connection. Http2Unavailable."""
    cdef const char *missing
    global callbacks, options
    if options is not NULL:
        return
    missing = nghttp2_load(&nghttp2)
    if missing is not NULL:
        raise Http2Unavailable(
            f"{(<bytes> missing).decode()} is missing: install nghttp2's library (Debian and Ubuntu: "
            "libnghttp2-14, Fedora: libnghttp2, Alpine: nghttp2-libs)"
        )
    if callbacks is NULL and nghttp2.callbacks_new(&callbacks) != 0:
        raise MemoryError()
    nghttp2.set_on_begin_frame(callbacks, on_begin_frame)
    nghttp2.set_on_begin_headers(callbacks, on_begin_headers)
    nghttp2.set_on_header(callbacks, on_header)
    nghttp2.set_on_frame_recv(callbacks, on_frame)
    nghttp2.set_on_frame_send(callbacks, on_sent)
    nghttp2.set_on_data_chunk_recv(callbacks, on_data)
    nghttp2.set_on_stream_close(callbacks, on_close)
    if nghttp2.option_new(&options) != 0:
        raise MemoryError()
    nghttp2.option_no_closed_streams(options, 1)


# ---- callbacks of nghttp2; `user` is the session, which outlives them ----

cdef int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user) noexcept:
    cdef Http2Session own = <Http2Session> user
    if head.type == CONTINUATION:
        own.continuations += 1
        if own.continuations > CONTINUATIONS_MAX:
            what = f"HTTP/2: more than {CONTINUATIONS_MAX} CONTINUATION frames of one request"
            own.failure = WireError(what)
            return FAILED
        return 0
    own.continuations = 0
    if head.type == SETTINGS and not head.flags & FLAG_ACK:
        try:
            own.count_settings()
        except BaseException as error:
            own.failure = error
            return FAILED
    return 0


cdef int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) noexcept:
    cdef Http2Session own = <Http2Session> user
    if frame.hd.stream_id in own.streams:
        return 0                              # trailers of the client, which nothing reads
    try:
        own.begin_stream(frame.hd.stream_id)
    except BaseException as error:
        own.failure = error
        return FAILED
    return 0


cdef int on_header(
    nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
    const uint8_t *value, size_t value_length, uint8_t flags, void *user,
) noexcept:
    cdef Http2Session own = <Http2Session> user
    cdef GrpcStream stream = own.newest
    if stream is None or stream.id != frame.hd.stream_id:
        return 0                              # trailers of the client
    try:
        if stream.head is not None or stream.finished:
            return 0
        if stream.add_header(own.head, name, name_length, value, value_length):
            return PAUSE if own.calls >= SLICE_CALLS else 0
        own.fault(f"HTTP/2: more than {HEADERS_MAX} headers, or {HEADER_BYTES_MAX} bytes of them")
    except BaseException as error:
        own.failure = error
        return FAILED
    return RESET_STREAM


cdef int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) noexcept:
    cdef Http2Session own = <Http2Session> user
    cdef void *found
    cdef GrpcStream stream
    try:
        if frame.hd.type != HEADERS and frame.hd.type != DATA:
            return 0
        found = nghttp2.stream_user(session, frame.hd.stream_id)
        if found is NULL:
            return 0
        stream = <GrpcStream> found
        if frame.hd.type == HEADERS and stream.head is None and not stream.finished:
            own.request(stream)
        if frame.hd.flags & FLAG_END_STREAM:
            stream.half_closed()
    except BaseException as error:
        own.failure = error
        return FAILED
    return 0


cdef int on_data(
    nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t length, void *user
) noexcept:
    cdef Http2Session own = <Http2Session> user
    cdef void *found = nghttp2.stream_user(session, stream_id)
    if found is NULL:
        return 0
    cdef GrpcStream stream
    cdef int messages
    try:
        stream = <GrpcStream> found
        messages = stream.messages
        stream.data(data, length)
        own.calls += stream.messages - messages
    except BaseException as error:
        own.failure = error
        return FAILED
    return PAUSE if own.calls >= SLICE_CALLS else 0


cdef int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user) noexcept:
    """Report why the connection ends, if nghttp2 has decided it."""
    cdef Http2Session own = <Http2Session> user
    cdef uint32_t error
    if frame.hd.type != GOAWAY or own.ending:
        return 0
    error = (<const nghttp2_goaway *> frame).error_code
    if error != NO_ERROR:
        try:
            own.connection.broken(f"HTTP/2: {nghttp2.http2_error(error).decode()}, the connection was ended")
        except BaseException as failure:
            own.failure = failure
            return FAILED
    return 0


cdef int on_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *user) noexcept:
    cdef Http2Session own = <Http2Session> user
    try:
        own.end_stream(stream_id, code)
    except BaseException as error:
        own.failure = error
        return FAILED
    return 0


cdef ssize_t read_unsent(
    nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t length, uint32_t *flags,
    nghttp2_data_source *source, void *user,
) noexcept:
    """The next bytes of a response, for a DATA frame."""
    cdef Http2Session own = <Http2Session> user
    cdef GrpcStream stream = <GrpcStream> source.ptr
    cdef Py_ssize_t taken = stream.take_unsent(to, length)
    own.held -= taken
    if stream.unsent_bytes > 0:
        return taken
    if not stream.finished:
        return taken if taken > 0 else DEFERRED
    flags[0] |= DATA_EOF | DATA_NO_END_STREAM
    try:
        own.trail(stream)
    except BaseException as error:
        own.failure = error
        return FAILED
    return taken


cdef inline nghttp2_nv header(
    const char *name, Py_ssize_t length, const char *value, Py_ssize_t value_length
) noexcept:
    return nghttp2_nv(
        name=<uint8_t *> name, namelen=length, value=<uint8_t *> value, valuelen=value_length, flags=0
    )


cdef class SessionStreams(StreamOwner):
    """What the streams of a session know of it."""

    cdef int accept_call(self, GrpcStream stream) except -1:
        return 0 if self.session is None else self.session.accept_call(stream)

    cdef int answer(self, GrpcStream stream) except -1:
        if self.session is None:
            return 0
        self.session.respond(stream)
        return self.session.plan_flush()

    cdef int reset(self, GrpcStream stream, uint32_t error) except -1:
        if self.session is None:
            return 0
        self.session.check(nghttp2.submit_reset(self.session.session, 0, stream.id, error))
        return self.session.plan_flush()

    cdef int held_changed(self, Py_ssize_t more) except -1:
        if self.session is not None:
            self.session.held += more
        return 0


cdef bint take(Allowance *allowance, double now, double most, double per_s) noexcept:
    """Whether one more is allowed."""
    allowance.left = min(allowance.left + (now - allowance.at) * per_s, most) - 1
    allowance.at = now
    return allowance.left >= 0


cdef class Http2Session(ByteProtocol):
    """HTTP/2 on a connection. `accept(stream)` is called with each request; it returns the call
    (GrpcStream.call), or None after it has finished the stream. `plain`: takes some calls before. Http2Unavailable."""

    def __init__(
        self, Connection connection not None, accept, Py_ssize_t message_bytes_max, PlainCalls plain=None
    ):
        # type: (Connection, Callable[[GrpcStream], object], int, PlainCalls | None) -> None
        load()
        self.connection = connection
        self.accept = accept
        self.plain = plain
        self.head = Writer()
        self.message_bytes_max = message_bytes_max
        self.streams = {}
        self.owner = SessionStreams()
        self.owner.session = self
        self.resets.left, self.settings.left = RESETS_MAX, SETTINGS_MAX
        self.begin()

    def __dealloc__(self):
        if self.session is not NULL:
            nghttp2.session_del(self.session)

    cdef int begin(self) except -1:
        """Send our SETTINGS."""
        cdef nghttp2_settings_entry settings[3]
        if nghttp2.server_new(&self.session, callbacks, <void *> self, options) != 0:
            raise MemoryError()
        settings[0] = nghttp2_settings_entry(settings_id=SETTINGS_MAX_STREAMS, value=STREAMS_MAX)
        settings[1] = nghttp2_settings_entry(settings_id=SETTINGS_WINDOW, value=STREAM_WINDOW)
        settings[2] = nghttp2_settings_entry(settings_id=SETTINGS_MAX_HEADERS, value=HEADER_BYTES_MAX)
        self.check(nghttp2.submit_settings(self.session, 0, settings, 3))
        self.check(nghttp2.set_window(self.session, 0, 0, CONNECTION_WINDOW))
        return self.plan_flush()

    # ---- bytes in ----

    cdef Py_ssize_t feed(self, const uint8_t *at, Py_ssize_t available) except -1:
        """Use bytes while there is time and the peer reads; returns their count."""
        cdef Py_ssize_t used = 0, size
        cdef int64_t now = nanoseconds(), deadline = now + TURN_NS, began
        while used < available and now < deadline and not self.ending and self.connection.has_time():
            began = now
            size = min(available - used, SLICE_BYTES)
            used += self.receive(at + used, size)
            now = nanoseconds()
            self.connection.spend(now - began)
        if self.ending:
            return available
        return used

    cdef Py_ssize_t receive(self, const uint8_t *at, Py_ssize_t length) except -1:
        """Returns how many bytes were used; fewer, if they had enough calls."""
        cdef ssize_t result, rest
        self.calls = 0
        self.inside = True
        result = nghttp2.mem_recv(self.session, at, length)
        if result == length and self.calls >= SLICE_CALLS:
            self.calls = 0
            rest = nghttp2.mem_recv(self.session, at, 0)  # the end of a frame, after a pause
            result = rest if rest < 0 else length
        self.inside = False
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.check(result)
        self.report()
        if nghttp2.want_write(self.session) or not nghttp2.want_read(self.session):
            self.plan_flush()
        return result

    cdef int check(self, ssize_t result) except -1:
        """WireError: the peer broke the protocol; MemoryError."""
        if result >= 0:
            return 0
        if result == NO_MEMORY:
            raise MemoryError()
        raise WireError(f"HTTP/2: {nghttp2.error_text(<int> result).decode()}")

    cdef int begin_stream(self, int32_t stream_id) except -1:
        cdef GrpcStream stream = GrpcStream.__new__(GrpcStream)
        stream.id = stream_id
        stream.owner = self.owner
        stream.message_bytes_max = self.message_bytes_max
        self.streams[stream_id] = self.newest = stream
        self.head.size = 0
        self.held += STREAM_BYTES
        return self.check(nghttp2.set_stream_user(self.session, stream_id, <void *> stream))

    cdef int request(self, GrpcStream stream) except -1:
        """All headers of a request have come."""
        self.calls += 1
        self.connection.received_frames += 1  # the peer is not one that only connects
        stream.head = self.head.take()
        if self.plain is not None:
            stream.plain = self.plain.taker(stream)
        if stream.plain is not None:
            stream.plain_state = WAITS_FOR_MESSAGE
            return 0
        return self.accept_call(stream)

    cdef int accept_call(self, GrpcStream stream) except -1:
        stream.call = self.accept(stream)
        if stream.call is None and not stream.finished:
            stream.reset()
        return 0

    cdef int fault(self, str what) except -1:
        """A request that is refused for its form. WireError: there were too many."""
        self.faults += 1
        if self.faults > FAULTS_MAX:
            raise WireError(f"{what}, more than {FAULTS_MAX} times")
        return 0

    cdef int count_reset(self) except -1:
        """A stream ended with an error. WireError: that costs us more than the peer, and happens too often."""
        if not take(&self.resets, self.connection.now(), RESETS_MAX, RESETS_PER_S):
            raise WireError(
                f"HTTP/2: more than {RESETS_MAX} streams ended with an error, and {RESETS_PER_S} in each second"
            )
        return 0

    cdef int count_settings(self) except -1:
        """SETTINGS change the windows of all streams. WireError: that happens too often."""
        if not take(&self.settings, self.connection.now(), SETTINGS_MAX, SETTINGS_PER_S):
            raise WireError(
                f"HTTP/2: more than {SETTINGS_MAX} SETTINGS frames, and {SETTINGS_PER_S} in each second"
            )
        return 0

    cdef int end_stream(self, int32_t stream_id, uint32_t error) except -1:
        cdef GrpcStream stream = self.streams.pop(stream_id, None)
        cdef bint is_reset
        if stream is None:
            return 0
        is_reset = error != NO_ERROR or not stream.finished
        self.held -= STREAM_BYTES
        stream.closed()
        return self.count_reset() if is_reset else 0

    # ---- bytes out ----

    cdef int respond(self, GrpcStream stream) except -1:
        """Submit the response's headers, or resume its data."""
        cdef nghttp2_nv headers[4]
        cdef nghttp2_data_provider provider
        if stream.begun:
            if not stream.trailed:
                nghttp2.resume_data(self.session, stream.id)  # fails if the data was not deferred
            return 0
        stream.begun = True
        headers[0] = header(":status", 7, "200", 3)
        headers[1] = header("content-type", 12, "application/grpc", 16)
        if stream.finished and stream.unsent_bytes == 0:
            stream.trailed = True
            return self.submit_status(stream, headers, 2, False)
        provider.source.ptr = <void *> stream
        provider.read_callback = read_unsent
        return self.check(nghttp2.submit_response(self.session, stream.id, headers, 2, &provider))

    cdef int trail(self, GrpcStream stream) except -1:
        cdef nghttp2_nv headers[2]
        stream.trailed = True
        return self.submit_status(stream, headers, 0, True)

    cdef int submit_status(
        self, GrpcStream stream, nghttp2_nv *headers, int count, bint is_trailer
    ) except -1:
        """Submit the call's status, after `count` headers if nothing else was sent."""
        cdef char digits[2]
        cdef bytes reason = stream.reason
        cdef int length = 2 if stream.status >= 10 else 1
        digits[0] = c"0" + (stream.status // 10 if length == 2 else stream.status)
        digits[1] = c"0" + stream.status % 10
        headers[count] = header("grpc-status", 11, digits, length)
        count += 1
        if reason:
            headers[count] = header("grpc-message", 12, <const char *> reason, len(reason))
            count += 1
        if is_trailer:
            self.check(nghttp2.submit_trailer(self.session, stream.id, headers, count))
        else:
            self.check(nghttp2.submit_response(self.session, stream.id, headers, count, NULL))
        return 0

    cdef int plan_flush(self) except -1:
        if not self.flush_planned:
            self.flush_planned = True
            self.connection.scheduler.call_soon(self.flush)
        return 0

    def flush(self):
        """Send what waits; a peer that cannot be served any more is disconnected."""
        cdef Connection connection = self.connection
        self.flush_planned = False
        if self.session is NULL or connection.closed:
            return
        try:
            self.send_all()
        except WireError as fault:
            connection.broken(str(fault))
            connection.abort()
        except BaseException:
            connection.abort()                # what the peer has is a part of a frame
            raise

    cdef int send_all(self) except -1:
        """Give the connection what nghttp2 has to send, unless its peer is slow."""
        cdef const uint8_t *at
        cdef ssize_t size = 0
        outgoing.size = 0
        while not self.connection.writing_paused and not self.connection.closed:
            self.inside = True
            size = nghttp2.mem_send(self.session, &at)
            self.inside = False
            if size <= 0:
                break
            outgoing.put(at, size)
            if outgoing.size >= SEND_BYTES:
                self.push()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.check(size)
        self.push()
        self.report()
        if not nghttp2.want_read(self.session) and not nghttp2.want_write(self.session):
            self.ending = True
            self.connection.close()
        return 0

    cdef int push(self) except -1:
        if outgoing.size > 0:
            self.connection.write_now(outgoing.data, outgoing.size)
            outgoing.size = 0
        return 0

    cdef int report(self) except -1:
        """Report what the streams hold to the connection's budget."""
        if self.connection.protocol_bytes != self.held:
            self.connection.protocol_bytes = self.held
            self.connection.report_held()
        return 0

    # ---- the connection's life ----

    cdef int writable(self) except -1:
        return self.plan_flush()

    cdef int drain(self) except -1:
        if self.session is NULL:
            return 0
        self.check(nghttp2.shutdown_notice(self.session))
        return self.plan_flush()

    cdef int end(self) except -1:
        if self.session is NULL or self.ending:
            return 0
        self.ending = True
        if self.inside:
            return 0
        self.check(nghttp2.terminate(self.session, NO_ERROR))
        return self.send_all()

    cdef int lost(self) except -1:
        cdef list streams = list(self.streams.values())
        cdef GrpcStream stream
        if self.session is NULL:
            return 0
        nghttp2.session_del(self.session)
        self.session = NULL
        self.owner.session = None
        self.streams.clear()
        self.newest = None
        self.held = 0
        for stream in streams:
            try:
                stream.closed()
            except Exception as error:        # the other calls end as well
                self.connection.loop.call_exception_handler({"message": "a call failed", "exception": error})
        return 0


def refusing_session(Connection connection not None, str reason not None):
    # type: (Connection, str) -> Http2Session
    """What a connection speaks where gRPC is not served: each call is UNIMPLEMENTED. Http2Unavailable."""

    def refuse(stream):
        stream.finish(UNIMPLEMENTED, reason)

    return Http2Session(connection, refuse, REFUSED_BYTES)
