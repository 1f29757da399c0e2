"""Encodes send requests, decodes their responses (see send_request.pxd)."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, strlen

from firearrow._native.wire.pending_calls cimport PendingCalls
from firearrow._native.wire.codes cimport (
    FLAG_ONEWAY, PYTHON, SEND_BATCH_MESSAGE, SEND_MESSAGE_V2, SERIALIZER_ROCKETMQ, VERSION,
)
from firearrow._native.wire.command cimport integer_of, text_of
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport SPAN_ABSENT, Span, is_text
from firearrow._native.wire.limits cimport FRAME_BYTES_MAX, FRAME_BYTES_MIN, HEADER_BYTES_MAX

from firearrow._native.wire.command import FieldError

cdef str DEFAULT_REGION = "DefaultRegion"


# ---- requests ----------------------------------------------------------------------------------------------

@cython.final
cdef class SendFields:
    """The fields that differ between the messages of a topic, the same in each attempt to send one."""

    def __init__(
        self, *, int32_t code=SEND_MESSAGE_V2, int32_t sys_flag=0, int32_t flag=0, int32_t reconsume_times=0,
        int32_t max_reconsume_times=-1,
    ):
        # type: (...) -> None
        """`max_reconsume_times` -1: not in the frame."""
        self.code = code
        self.sys_flag = sys_flag
        self.flag = flag
        self.reconsume_times = reconsume_times
        self.max_reconsume_times = max_reconsume_times


cdef SendFields PLAIN = SendFields()


@cython.final
cdef class SendFrames:
    """SEND frames of one group and topic, field for field as the Java client writes them."""

    def __init__(
        self, str group not None, str topic not None, *, str default_topic not None="TBW102",
        int default_queues=4, bint unit_mode=False, bint binary=False,
    ):
        # type: (...) -> None
        cdef Writer out = Writer()
        self.binary = binary
        self.unit_mode = unit_mode
        for name, value in (("a", group), ("b", topic), ("c", default_topic), ("d", str(default_queues))):
            if binary:
                put_field(out, name.encode(), value.encode())
            else:
                put_json_text(out, name)
                out.put_byte(c':')
                put_json_text(out, value)
                out.put_byte(c',')
        self.constant = out.take()
        self.free_writer = Writer()

    def frame(
        self, int32_t opaque, int32_t queue_id, int64_t born_ms, bytes properties not None,
        bytes body not None,
        SendFields fields not None=PLAIN, *, str broker_name=None, bint oneway=False,
    ):
        # type: (...) -> bytes
        """One complete frame. ValueError: it is over the limit."""
        cdef Send send
        send.opaque = opaque
        send.code = fields.code
        send.frame_flag = FLAG_ONEWAY if oneway else 0
        send.queue_id = queue_id
        send.sys_flag = fields.sys_flag
        send.flag = fields.flag
        send.reconsume_times = fields.reconsume_times
        send.max_reconsume_times = fields.max_reconsume_times
        send.born_ms = born_ms
        send.batch = fields.code == SEND_BATCH_MESSAGE
        return self.frame_at(
            &send, broker_name, <const uint8_t *> PyBytes_AS_STRING(properties), len(properties), body
        )

    cdef bytes frame_at(
        self, const Send *send, str broker_name, const uint8_t *properties, Py_ssize_t properties_bytes,
        bytes body
    ):
        cdef Writer out = self.free_writer
        cdef Py_ssize_t body_bytes = len(body)
        cdef Py_ssize_t header_bytes
        cdef bytes frame
        cdef uint8_t *to
        self.free_writer = None
        if out is None:
            out = Writer()
        out.size = FRAME_BYTES_MIN
        out.reserve(FRAME_BYTES_MIN)
        if self.binary:
            self.put_binary(out, send, broker_name, properties, properties_bytes)
        else:
            self.put_json(out, send, broker_name, properties, properties_bytes)
        header_bytes = out.size - FRAME_BYTES_MIN
        if header_bytes > HEADER_BYTES_MAX:
            raise ValueError(f"header of {header_bytes} bytes, at most {HEADER_BYTES_MAX}")
        if out.size + body_bytes > FRAME_BYTES_MAX:
            raise ValueError(f"frame of {out.size + body_bytes} bytes, at most {FRAME_BYTES_MAX}")
        out.patch_i32(0, <int32_t> (out.size + body_bytes - 4))
        out.patch_i32(4, <int32_t> (header_bytes | (SERIALIZER_ROCKETMQ << 24 if self.binary else 0)))
        frame = PyBytes_FromStringAndSize(NULL, out.size + body_bytes)
        to = <uint8_t *> PyBytes_AS_STRING(frame)
        memcpy(to, out.data, out.size)
        memcpy(to + out.size, PyBytes_AS_STRING(body), body_bytes)
        self.free_writer = out
        return frame

    cdef int put_json(
        self, Writer out, const Send *send, str broker_name, const uint8_t *properties,
        Py_ssize_t properties_bytes
    ) except -1:
        """In the order of the Java client: members and fields alphabetically."""
        put_member(out, '{"code":', send.code)
        put_raw(out, ',"extFields":{')
        out.put(PyBytes_AS_STRING(self.constant), len(self.constant))
        put_member(out, '"e":"', send.queue_id)
        put_member(out, '","f":"', send.sys_flag)
        put_member(out, '","g":"', send.born_ms)
        put_member(out, '","h":"', send.flag)
        put_raw(out, '","i":')
        out.put_json_string(properties, properties_bytes)
        put_member(out, ',"j":"', send.reconsume_times)
        put_raw(out, '","k":"true"' if self.unit_mode else '","k":"false"')
        if send.max_reconsume_times >= 0:
            put_member(out, ',"l":"', send.max_reconsume_times)
            out.put_byte(c'"')
        put_raw(out, ',"m":"true"' if send.batch else ',"m":"false"')
        if broker_name is not None:
            put_raw(out, ',"n":')
            put_json_text(out, broker_name)
        put_member(out, '},"flag":', send.frame_flag)
        put_member(out, ',"language":"PYTHON","opaque":', send.opaque)
        put_member(out, ',"serializeTypeCurrentRPC":"JSON","version":', VERSION)
        return out.put_byte(c'}')

    cdef int put_binary(
        self, Writer out, const Send *send, str broker_name, const uint8_t *properties,
        Py_ssize_t properties_bytes
    ) except -1:
        cdef Py_ssize_t start
        out.put_i16(<short> send.code)
        out.put_byte(<uint8_t> PYTHON)
        out.put_i16(<short> VERSION)
        out.put_i32(send.opaque)
        out.put_i32(send.frame_flag)
        out.put_i32(0)
        start = out.size
        out.put_i32(0)
        out.put(PyBytes_AS_STRING(self.constant), len(self.constant))
        put_number_field(out, b"e", send.queue_id)
        put_number_field(out, b"f", send.sys_flag)
        put_number_field(out, b"g", send.born_ms)
        put_number_field(out, b"h", send.flag)
        put_field_at(out, b"i", properties, properties_bytes)
        put_number_field(out, b"j", send.reconsume_times)
        put_field(out, b"k", b"true" if self.unit_mode else b"false")
        if send.max_reconsume_times >= 0:
            put_number_field(out, b"l", send.max_reconsume_times)
        put_field(out, b"m", b"true" if send.batch else b"false")
        if broker_name is not None:
            put_field(out, b"n", broker_name.encode())
        out.patch_i32(start, <int32_t> (out.size - start - 4))
        return 0


cdef inline int put_raw(Writer out, const char *text) except -1:
    return out.put(text, strlen(text))


cdef inline int put_member(Writer out, const char *text, int64_t value) except -1:
    put_raw(out, text)
    return out.put_decimal(value)


cdef int put_json_text(Writer out, str text) except -1:
    cdef bytes raw = text.encode()
    return out.put_json_string(<const uint8_t *> PyBytes_AS_STRING(raw), len(raw))


cdef int put_field(Writer out, bytes name, bytes value) except -1:
    return put_field_at(out, name, <const uint8_t *> PyBytes_AS_STRING(value), len(value))


cdef int put_field_at(Writer out, bytes name, const uint8_t *value, Py_ssize_t length) except -1:
    out.put_i16(<short> len(name))
    out.put(PyBytes_AS_STRING(name), len(name))
    out.put_i32(<int32_t> length)
    return out.put(value, length)


cdef int put_number_field(Writer out, bytes name, int64_t value) except -1:
    cdef Py_ssize_t start
    out.put_i16(<short> len(name))
    out.put(PyBytes_AS_STRING(name), len(name))
    out.put_i32(0)
    start = out.size
    out.put_decimal(value)
    out.patch_i32(start - 4, <int32_t> (out.size - start))
    return 0


# ---- answers -----------------------------------------------------------------------------------------------

@cython.final
cdef class SendAnswer:
    """A broker's response to a send; missing numbers are -1, missing strings None."""

    def __repr__(self):
        return f"SendAnswer({self.code}, {self.remark!r}, queue {self.queue_id}, offset {self.queue_offset})"


cdef SendAnswer answer_of(const Header *header):
    """Raises WireError, or FieldError for a malformed number."""
    cdef SendAnswer answer = SendAnswer.__new__(SendAnswer)
    cdef const Span *key
    cdef const Span *value
    cdef int n
    answer.code = header.code
    answer.queue_id = -1
    answer.queue_offset = -1
    answer.trace_on = True
    answer.region = DEFAULT_REGION
    if header.remark.kind != SPAN_ABSENT:
        answer.remark = text_of(&header.remark)
    for n in range(header.fields):
        key = &header.field[n].key
        value = &header.field[n].value
        if is_text(key, "queueOffset"):
            answer.queue_offset = number_of("queueOffset", value, 64)
        elif is_text(key, "queueId"):
            answer.queue_id = <int32_t> number_of("queueId", value, 32)
        elif is_text(key, "msgId"):
            answer.offset_message_id = text_of(value)
        elif is_text(key, "transactionId"):
            answer.transaction_id = text_of(value)
        elif is_text(key, "MSG_REGION"):
            if not is_text(value, "DefaultRegion"):
                answer.region = text_of(value)
        elif is_text(key, "TRACE_ON"):
            answer.trace_on = not is_text(value, "false")
        elif is_text(key, "batchUniqId"):
            answer.batch_unique_id = text_of(value)
        elif is_text(key, "recallHandle"):
            answer.recall_handle = text_of(value)
    return answer


cdef int64_t number_of(str name, const Span *value, int bits) except? -1:
    cdef int64_t number = 0
    cdef int n
    if not 0 < value.length <= 9:
        return integer_of(name, text_of(value), bits)
    for n in range(value.length):
        if not c'0' <= value.at[n] <= c'9':
            return integer_of(name, text_of(value), bits)
        number = number * 10 + value.at[n] - c'0'
    return number


@cython.final
cdef class SendWaiter(CallWaiter):
    cdef bint is_waiting(self) except -1:
        return True

    cdef int response_received(self, const Frame *frame, const Header *header) except -1:
        try:
            outcome = answer_of(header)
        except FieldError as fault:
            outcome = fault
        self.done(outcome)
        return 0

    cdef int call_failed(self, object error) except -1:
        self.done(error)
        return 0


def post(
    PendingCalls channel not None, int32_t opaque, bytes frame not None, done not None, double timeout_s
):
    # type: (PendingCalls, int, bytes, Callable[[SendAnswer | BaseException], object], float) -> None
    """Send a frame whose opaque is `channel.next_opaque()`. Calls `done` once, with the response or the
    failure.

    Raises the exception of the channel's `failure` if nothing can be sent; then `done` is not called."""
    cdef SendWaiter waiter
    refusal = channel.too_many_error()
    if refusal is not None:
        raise refusal
    waiter = SendWaiter.__new__(SendWaiter)
    waiter.done = done
    channel.post(opaque, frame, waiter, timeout_s)
