"""PlainSends: sends of one message that needs no more than storing (see plain_sends.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcmp, memcpy, memset

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.base.endian cimport get_i16, put_i32
from firearrow._native.fastpath.access_check cimport AccessCheck
from firearrow._native.fastpath.fast_connection cimport HANDLED
from firearrow._native.fastpath.request_fields cimport PROPERTIES_VALUE, TOPIC_VALUE, SendFields
from firearrow._native.fastpath.request_times cimport KIND_SEND_V2
from firearrow._native.grpc.proto_writer cimport (
    OK_BYTES, VARINT_BYTES, put_key, put_number, put_ok, put_text, put_varint, varint_bytes,
)
from firearrow._native.grpc.send_request cimport (
    GZIP, PROPERTIES_BYTES, SendRequest, read_request, write_properties,
)
from firearrow._native.http2.grpc_stream cimport HEADER_LENGTHS, PREFIX_BYTES
from firearrow._native.wire.json cimport SPAN_RAW, Span
from firearrow._native.wire.write_buffer cimport Writer

cdef enum:
    TOPICS_MAX = 100000
    CLIENTS_MAX = 64                      # of a connection that are remembered
    COMPRESSED_ZLIB = 0x301               # sysFlag of a body that the client has compressed

cdef const char *SEND_PATH = "/apache.rocketmq.v2.MessagingService/SendMessage"
cdef const char *ACK_PATH = "/apache.rocketmq.v2.MessagingService/AckMessage"
cdef const char *CONTENT_TYPE = "application/grpc"
cdef int SEND_PATH_BYTES = 48
cdef int ACK_PATH_BYTES = 47
cdef int CONTENT_TYPE_BYTES = 16


cdef struct CallHead:
    # headers that matter here
    Text path, method, content_type, client_id, authorization, date


cdef inline bint is_named(const uint8_t *at, Py_ssize_t length, const char *name) noexcept nogil:
    return memcmp(at, name, length) == 0


cdef void read_head(bytes head, CallHead *found) noexcept:
    """Of names that come twice, the last one counts."""
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(head)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(head)
    cdef Py_ssize_t length, value_length
    cdef Text value
    memset(found, 0, sizeof(found[0]))
    while at < end:
        length, value_length = <uint16_t> get_i16(at), <uint16_t> get_i16(at + 2)
        at += HEADER_LENGTHS
        value = Text(at=at + length, length=value_length)
        if length == 5 and is_named(at, length, ":path"):
            found.path = value
        elif length == 7 and is_named(at, length, ":method"):
            found.method = value
        elif length == 12 and is_named(at, length, "content-type"):
            found.content_type = value
        elif length == 13 and is_named(at, length, "authorization"):
            found.authorization = value
        elif length == 14 and is_named(at, length, "x-mq-client-id"):
            found.client_id = value
        elif length == 14 and is_named(at, length, "x-mq-date-time"):
            found.date = value
        at += length + value_length


cdef bytes client_key(const CallHead *head, bint dated):
    """What names the client: values of headers, which contain no NUL. `dated`: the date, which is signed, as well."""
    cdef Py_ssize_t date_bytes = head.date.length if dated else 0
    cdef bytes key = PyBytes_FromStringAndSize(
        NULL, head.client_id.length + head.authorization.length + date_bytes + 2
    )
    cdef char *to = PyBytes_AS_STRING(key)
    memcpy(to, head.client_id.at, head.client_id.length)
    to += head.client_id.length
    to[0] = 0
    memcpy(to + 1, head.authorization.at, head.authorization.length)
    to += head.authorization.length + 1
    to[0] = 0
    memcpy(to + 1, head.date.at, date_bytes)
    return key


cdef class QueueTurns:
    """The queues of messages without a message group take turns, in each topic."""

    def __cinit__(self):
        self.next = {}

    cpdef int turn(self, str topic, int queues) except -1:
        # type: (...) -> int
        cdef int found
        if topic not in self.next and len(self.next) >= TOPICS_MAX:
            self.next.clear()
        found = <int> self.next.get(topic, 0) % queues
        self.next[topic] = found + 1
        return found


cdef class CallTopic:
    pass


cdef class SendRules:
    """What the plain sends of all connections share (see plain_sends.pxd). `not_settable`: names that a client may not
    give to a user property."""

    def __cinit__(
        self,
        Sender sender not None,
        QueueTurns turns not None,
        RequestTimes times not None,
        not_settable,  # type: Iterable[str]
        find_topic,  # type: Callable[[str], int]
        failed,  # type: Callable[[bytes, int, str | None], bytes]
    ):
        # type: (...) -> None
        self.sender = sender
        self.turns = turns
        self.times = times
        self.not_settable = frozenset([name.encode() for name in not_settable])
        self.find_topic = find_topic
        self.failed = failed
        self.topics = {}
        self.properties = <uint8_t *> PyMem_Malloc(PROPERTIES_BYTES)
        if self.properties is NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.properties)

    def date(self, bint dated):
        # type: (...) -> None
        """Whether the age of headers counts, which changes with the options."""
        self.dated = dated

    def forget_topics(self):
        # type: (...) -> None
        """Topics changed."""
        self.topics.clear()

    cdef CallTopic topic(self, const Text *name):
        cdef CallTopic topic
        cdef bytes key = PyBytes_FromStringAndSize(<const char *> name.at, name.length)
        found = self.topics.get(key)
        if found is None:
            topic = CallTopic.__new__(CallTopic)
            topic.name = key.decode()
            topic.queues = self.find_topic(topic.name)
            if topic.queues == 0:             # names that clients make up are not kept
                return topic
            if len(self.topics) >= TOPICS_MAX:
                self.topics.clear()
            found = self.topics[key] = topic
        return <CallTopic> found

    cdef bint may_set(self, const SendRequest *request):
        """Whether a client may set these user properties."""
        cdef int n
        for n in range(request.user_count):
            name = PyBytes_FromStringAndSize(<const char *> request.names[n].at, request.names[n].length)
            if name in self.not_settable:
                return False
        return True


cdef class LetThrough:
    pass


cdef bint is_allowed(
    AccessCheck access, FastConnection connection, LetThrough client, const Text *topic, const Text *group
) except -1:
    """Whether the client may send to the topic (`group` NULL), or receive of it for the group."""
    cdef Span name = Span(at=topic.at, length=<int32_t> topic.length, kind=SPAN_RAW)
    cdef Span other
    if access is None:
        return True
    if client.generation != access.generation or not access.is_logged_in(connection, client.user):
        return False
    if group is NULL:
        return access.may_use(connection, &name, NULL)
    other = Span(at=group.at, length=<int32_t> group.length, kind=SPAN_RAW)
    return access.may_use(connection, &name, &other)


cdef class PlainSends(PlainCalls):
    """The plain sends on one connection; `acks` takes its plain acknowledgements."""

    def __cinit__(
        self, SendRules rules not None, FastConnection connection not None, PlainCalls acks not None
    ):
        # type: (...) -> None
        self.rules = rules
        self.connection = connection
        self.acks = acks
        self.clients = {}

    def let_through(
        self, GrpcStream stream not None, str client_id not None, str user not None, str host not None
    ):
        # type: (...) -> None
        """The complete path has checked this call: its headers name this client and this user."""
        cdef CallHead head
        cdef AccessCheck access = self.rules.sender.access
        cdef LetThrough client = LetThrough.__new__(LetThrough)
        if stream.head is None:
            return
        client.user, client.host, client.owner = user, host.encode(), (client_id, user)
        client.generation = 0 if access is None else access.generation
        read_head(stream.head, &head)
        if len(self.clients) >= CLIENTS_MAX:
            self.clients.clear()
        self.clients[client_key(&head, access is not None)] = client

    def forget(self):
        # type: (...) -> None
        """A client has ended."""
        for client in self.clients.values():
            (<LetThrough> client).ended = True
        self.clients.clear()

    cdef PlainCalls taker(self, GrpcStream stream):
        cdef CallHead head
        cdef PlainCalls found = None
        if self.rules.dated:
            return None
        read_head(stream.head, &head)
        if (
            head.method.length != 4 or memcmp(head.method.at, b"POST", 4) != 0
            or head.content_type.length < CONTENT_TYPE_BYTES
            or memcmp(head.content_type.at, CONTENT_TYPE, CONTENT_TYPE_BYTES) != 0
        ):
            return None
        if head.path.length == SEND_PATH_BYTES and is_named(head.path.at, SEND_PATH_BYTES, SEND_PATH):
            found = self
        elif head.path.length == ACK_PATH_BYTES and is_named(head.path.at, ACK_PATH_BYTES, ACK_PATH):
            found = self.acks
        if found is not None:
            stream.caller = self.clients.get(client_key(&head, self.rules.sender.access is not None))
        return None if stream.caller is None else found

    cdef bint handle(self, GrpcStream stream, const uint8_t *at, Py_ssize_t length) except -1:
        cdef SendRequest request
        cdef LetThrough client = <LetThrough> stream.caller
        if (
            client.ended or not read_request(at, length, &request)
            or not is_allowed(self.rules.sender.access, self.connection, client, &request.topic, NULL)
            or not self.rules.may_set(&request)
        ):
            return False
        return self.put(stream, client, &request)

    cdef bint put(self, GrpcStream stream, LetThrough client, SendRequest *request) except -1:
        cdef SendFields fields
        cdef SendCall call
        cdef SendRules rules = self.rules
        cdef CallTopic topic = rules.topic(&request.topic)
        cdef Text host = Text(
            at=<const uint8_t *> PyBytes_AS_STRING(client.host), length=PyBytes_GET_SIZE(client.host)
        )
        if topic.queues == 0:
            return False
        memset(&fields, 0, sizeof(fields))
        fields.born_ms = request.born_ms if request.born_ms != 0 else rules.sender.clock.now_ms()
        fields.queue_id = rules.turns.turn(topic.name, topic.queues)
        fields.sys_flag = COMPRESSED_ZLIB if request.encoding == GZIP else 0
        fields.kind = KIND_SEND_V2
        fields.value[TOPIC_VALUE] = Span(
            at=request.topic.at, length=<int32_t> request.topic.length, kind=SPAN_RAW
        )
        fields.value[PROPERTIES_VALUE] = Span(
            at=rules.properties,
            length=<int32_t> write_properties(request, &host, fields.born_ms, rules.properties),
            kind=SPAN_RAW,
        )
        call = SendCall.__new__(SendCall)
        call.stream, call.sends, call.since_ns = stream, self, nanoseconds()
        if rules.sender.handle_call(self.connection, call, &request.body, &fields) == HANDLED:
            self.calls += 1
            return True
        rules.turns.next[topic.name] = <int> fields.queue_id  # the complete path chooses it again
        return False


cdef class SendCall(AnsweredCall):
    """A send that waits for its write batch."""

    cdef int write(self, Writer out, const Text *unique_key, int64_t queue_offset) except -1:
        """A SendMessageResponse with its prefix."""
        cdef Py_ssize_t start = out.size
        cdef Py_ssize_t entry = 2 + OK_BYTES + 2 * (1 + varint_bytes(unique_key.length) + unique_key.length)
        cdef uint8_t *to
        if queue_offset > 0:
            entry += 1 + varint_bytes(queue_offset)
        out.reserve(PREFIX_BYTES + 2 + OK_BYTES + 1 + VARINT_BYTES + entry)
        to = put_ok(out.data + out.size + PREFIX_BYTES)
        to = put_varint(put_key(to, 2, 2), entry)
        to = put_ok(to)
        to = put_text(to, 2, unique_key)      # the message's id, and as that of a transaction
        to = put_text(to, 3, unique_key)
        if queue_offset > 0:
            to = put_number(to, 4, queue_offset)
        out.size = to - out.data
        out.data[start] = 0
        put_i32(out.data + start + 1, <int32_t> (out.size - start - PREFIX_BYTES))
        return 0

    cdef int answered(self, const uint8_t *reply, Py_ssize_t length) except -1:
        self.sends.rules.times.record(KIND_SEND_V2, nanoseconds() - self.since_ns, 1)
        try:
            self.stream.answer_framed(reply, length)
        except Exception as error:            # the replies to others are not affected
            self.sends.connection.abort_with(error)
        return 0

    cdef int failed(self, const uint8_t *reply, Py_ssize_t length, int32_t code, str remark) except -1:
        cdef bytes message = PyBytes_FromStringAndSize(
            <const char *> reply + PREFIX_BYTES, length - PREFIX_BYTES
        )
        self.sends.rules.times.refused(KIND_SEND_V2, code, 1)
        try:
            self.stream.send(self.sends.rules.failed(message, code, remark))
            self.stream.finish()
        except Exception as error:
            self.sends.connection.abort_with(error)
        return 0
