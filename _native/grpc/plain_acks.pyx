"""PlainAcks: acknowledgements that need no more than storing (see plain_acks.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcpy, memset

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.base.endian cimport put_i32
from firearrow._native.fastpath.pending_replies cimport ReplyBatch
from firearrow._native.fastpath.request_times cimport KIND_ACK
from firearrow._native.grpc.plain_sends cimport is_allowed
from firearrow._native.grpc.proto_writer cimport (
    OK_BYTES, VARINT_BYTES, put_key, put_ok, put_status, put_text, put_varint, varint_bytes,
)
from firearrow._native.grpc.send_request cimport is_second, read_resource
from firearrow._native.http2.grpc_stream cimport PREFIX_BYTES
from firearrow._native.http2.proto_fields cimport BYTES, ProtoField, next_field
from firearrow._native.wire.codes cimport FLUSH_DISK_TIMEOUT
from firearrow._native.wire.write_buffer cimport Writer

from firearrow._native.store.log.results import PutRefused

cdef enum:
    # of message AckMessageRequest and AckMessageEntry
    GROUP = 1
    TOPIC = 2
    ENTRIES = 3
    MESSAGE_ID = 1
    RECEIPT_HANDLE = 2
    # words of a receipt handle (broker/grpc/receipts.py)
    POP_MS = 1
    KIND = 4
    QUEUE_ID = 6
    QUEUE_OFFSET = 7
    WORDS = 9
    POP_WORDS = 6
    DIGITS_MAX = 18


# ---- requests ----

cdef bint read_ack(const uint8_t *at, Py_ssize_t length, AckRequest *found) noexcept nogil:
    """False: it is not plain, or not as clients write it."""
    cdef const uint8_t *end = at + length
    cdef ProtoField field
    cdef int seen = 0
    memset(found, 0, sizeof(found[0]))
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != BYTES or field.number > ENTRIES or is_second(&field, &seen):
            return False
        if field.number == GROUP:
            if not read_resource(field.at, field.at + field.length, &found.group):
                return False
        elif field.number == TOPIC:
            if not read_resource(field.at, field.at + field.length, &found.topic):
                return False
        elif not read_entry(field.at, field.at + field.length, found):
            return False
    return seen == (1 << GROUP | 1 << TOPIC | 1 << ENTRIES)


cdef bint read_entry(const uint8_t *at, const uint8_t *end, AckRequest *found) noexcept nogil:
    cdef ProtoField field
    cdef int seen = 0
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != BYTES or field.number > RECEIPT_HANDLE or is_second(&field, &seen):
            return False
        if field.number == MESSAGE_ID:
            found.message_id = Text(at=field.at, length=field.length)
            if not is_ascii(&found.message_id):
                return False
        else:
            found.receipt_handle = Text(at=field.at, length=field.length)
    return found.message_id.length > 0 and read_handle(found)


cdef bint read_handle(AckRequest *found) noexcept nogil:
    """The words of the receipt handle, of a message that has not waited in a retry topic."""
    cdef const uint8_t *at = found.receipt_handle.at
    cdef const uint8_t *end = at + found.receipt_handle.length
    cdef const uint8_t *stop
    cdef Text word
    cdef int n
    for n in range(WORDS):
        stop = <const uint8_t *> memchr(at, c" ", end - at) if at < end else NULL
        if (stop is NULL) != (n == WORDS - 1):
            return False
        word = Text(at=at, length=(end if stop is NULL else stop) - at)
        if n == KIND and (word.length != 1 or word.at[0] != c"0"):
            return False
        if n == POP_MS and not read_number(&word, &found.pop_ms):
            return False
        if n == POP_WORDS - 1:
            found.check_point = Text(at=found.receipt_handle.at, length=stop - found.receipt_handle.at)
        if n == QUEUE_ID:
            found.queue_id = word
        if n == QUEUE_OFFSET and not read_number(&word, &found.queue_offset):
            return False
        at = stop + 1
    return True


cdef bint read_number(const Text *word, int64_t *value) noexcept nogil:
    cdef Py_ssize_t n
    value[0] = 0
    for n in range(word.length):
        if not c"0" <= word.at[n] <= c"9":
            return False
        value[0] = 10 * value[0] + (word.at[n] - c"0")
    return 0 < word.length <= DIGITS_MAX


cdef bint is_ascii(const Text *text) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(text.length):
        if text.at[n] >= 0x80:
            return False
    return True


cdef bytes check_point_key(const AckRequest *request):
    """As `check_point_key` of broker/pop/receipt_handles.py makes it."""
    cdef Py_ssize_t length = request.check_point.length
    cdef bytes key = PyBytes_FromStringAndSize(
        NULL, request.group.length + request.topic.length + request.queue_id.length + length + 3
    )
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(key)
    to = put_word(put_word(put_word(to, &request.group), &request.topic), &request.queue_id)
    memcpy(to, request.check_point.at, length)
    return key


cdef inline uint8_t *put_word(uint8_t *to, const Text *text) noexcept nogil:
    memcpy(to, text.at, text.length)
    to[text.length] = 0
    return to + text.length + 1


# ---- calls ----

cdef class AckRules:
    """What the plain acknowledgements of all connections share (see plain_acks.pxd)."""

    def __cinit__(
        self,
        Sender sender not None,
        AckTemplates templates not None,
        RequestTimes times not None,
        may_use,  # type: Callable[[str, str], bool]
        owners,  # type: Collection[tuple[str, str]]
        find,  # type: Callable[[tuple[str, str], tuple[str, str, int, int]], object]
        ended,  # type: Callable[..., None]
        failed,  # type: Callable[[bytes, int, str | None], bytes]
    ):
        # type: (...) -> None
        self.sender, self.templates, self.times = sender, templates, times
        self.may_use, self.owners, self.find = may_use, owners, find
        self.ended, self.failed = ended, failed


cdef class PlainAcks(PlainCalls):
    """The plain acknowledgements on one connection."""

    def __cinit__(self, AckRules rules not None, FastConnection connection not None):
        # type: (...) -> None
        self.rules = rules
        self.connection = connection

    cdef bint handle(self, GrpcStream stream, const uint8_t *at, Py_ssize_t length) except -1:
        cdef AckRequest request
        cdef AckRules rules = self.rules
        cdef AckTemplate template
        cdef LetThrough client = <LetThrough> stream.caller
        cdef object renewed = None
        if (
            client.ended or rules.templates.limited or not read_ack(at, length, &request)
            or not is_allowed(
                rules.sender.access, self.connection, client, &request.topic, &request.group
            )
        ):
            return False
        template = rules.templates.find(
            check_point_key(&request), request.queue_offset, rules.templates.clock.now_ms()
        )
        if template is None:
            return False
        if template.for_grpc == 0:
            template.for_grpc = 1 if rules.may_use(template.group, template.topic) else -1
        if template.for_grpc < 0:             # a client of remoting has made it
            return False
        if client.owner in rules.owners:
            renewed = rules.find(
                client.owner, (template.group, template.topic, template.queue_id, request.queue_offset)
            )
            if renewed is not None and not is_newest(renewed, &request):
                return False
        return self.put(stream, template, &request, renewed)

    cdef bint put(
        self, GrpcStream stream, AckTemplate template, const AckRequest *request, object renewed
    ) except -1:
        cdef Sender sender = self.rules.sender
        cdef AckTemplates templates = self.rules.templates
        cdef ReplyBatch reply_batch = sender.open_reply_batch()
        cdef AckCall call = AckCall.__new__(AckCall)
        cdef int64_t end
        try:
            end = templates.stage(template, request.queue_offset, reply_batch.now_ms)
        except PutRefused:
            return False
        call.stream, call.acks, call.renewed, call.since_ns = stream, self, renewed, nanoseconds()
        if renewed is not None:
            renewed.asked += 1                # it is not renewed meanwhile
        reply_batch.is_plain = False          # the timer waits for it
        reply_batch.add_queue(templates.queue_of(template), end)
        reply_batch.begin_call(self.connection, call, True)
        write_response(reply_batch.answers, request)
        sender.answers_bytes = reply_batch.answers.size
        reply_batch.finish()
        self.calls += 1
        templates.calls += 1
        return True


cdef bint is_newest(object renewed, const AckRequest *request) except -1:
    """Whether the client has the newest handle of the message: it was not renewed since its pop, and is not now."""
    return (
        renewed.times == 0 and renewed.waiting is None and renewed.receipt.handle.pop_ms == request.pop_ms
    )


cdef int write_response(Writer out, const AckRequest *request) except -1:
    """An AckMessageResponse that states success, with its prefix."""
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t entry = 2 + OK_BYTES + 2 + request.message_id.length + request.receipt_handle.length
    cdef uint8_t *to
    entry += varint_bytes(request.message_id.length) + varint_bytes(request.receipt_handle.length)
    out.reserve(PREFIX_BYTES + 2 + OK_BYTES + 1 + VARINT_BYTES + entry)
    to = put_ok(out.data + out.size + PREFIX_BYTES)
    to = put_varint(put_key(to, 2, BYTES), entry)
    to = put_text(to, 1, &request.message_id)
    to = put_text(to, 2, &request.receipt_handle)
    to = put_status(to, 3)
    out.size = to - out.data
    out.data[start] = 0
    put_i32(out.data + start + 1, <int> (out.size - start - PREFIX_BYTES))
    return 0


cdef class AckCall(AnsweredCall):
    """An acknowledgement that waits for its write batch."""

    cdef int answered(self, const uint8_t *reply, Py_ssize_t length) except -1:
        cdef AckRules rules = self.acks.rules
        rules.times.record(KIND_ACK, nanoseconds() - self.since_ns, 1)
        try:
            if self.renewed is not None:
                rules.ended(self.renewed, True)
            self.stream.answer_framed(reply, length)
        except Exception as error:            # the replies to others are not affected
            self.acks.connection.abort_with(error)
        return 0

    cdef int failed(self, const uint8_t *reply, Py_ssize_t length, int32_t code, str remark) except -1:
        cdef AckRules rules = self.acks.rules
        cdef bytes message
        if remark is None and code != FLUSH_DISK_TIMEOUT:
            return self.answered(reply, length)  # as of a handler: only sends state missing copies
        message = PyBytes_FromStringAndSize(<const char *> reply + PREFIX_BYTES, length - PREFIX_BYTES)
        rules.times.refused(KIND_ACK, code, 1)
        try:
            if self.renewed is not None:
                rules.ended(self.renewed, False)
            self.stream.send(rules.failed(message, code, remark))
            self.stream.finish()
        except Exception as error:
            self.acks.connection.abort_with(error)
        return 0
