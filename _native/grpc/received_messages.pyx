"""ReceivedMessages: the messages of one answer to ReceiveMessage, encoded from their records.

The fields are those of `message_to` (broker/grpc/message_codec.py); tests/grpc/test_received_messages.py compares
both. None means "not encoded here", never "invalid": compressed bodies, addresses of IPv6, and messages with properties
that stand for a type, a delay or another message; `message_to` makes these. Any thread.
"""

import hashlib

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.base.endian cimport get_i32, put_i32
from firearrow._native.base.text cimport is_utf8
from firearrow._native.grpc.proto_writer cimport (
    put_key, put_number, put_text, put_varint, varint_bytes,
)
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, Text, check_record
from firearrow._native.wire.text_writer cimport decimal

cdef enum:
    PREFIX_BYTES = 5
    COMPRESSED = 0x1                      # of sysFlag
    HOST_V4_BYTES = 8
    HOST_TEXT_BYTES = 48                  # an address, and a number as `decimal` writes it
    OWN_BYTES = 69632                     # system properties: twice those of a record, since keys of one character grow
    HANDLE_MAX = 1024
    ID_MAX = 255
    USER_MAX = 64
    MD5 = 2
    IDENTITY = 1
    NORMAL = 1
    DIGEST_CHARS = 32

cdef struct Known:
    # properties that become fields
    Text unique_key, tag, keys, born_host, trace_context
    Text names[USER_MAX]                  # of user properties
    Text values[USER_MAX]
    int user_count


cdef class ReceivedMessages:
    """`name`: of the topic; `topic`: its Resource, serialized. `head`: of a receipt handle, the words from the pop's
    time to the revive queue. `starts`: where the pop began to read, by queue. `fields`: names of properties that become
    other fields than here, and `hidden`: names that clients do not get."""

    cdef bytes name, topic, head, broker
    cdef dict starts
    cdef frozenset fields, hidden
    cdef uint8_t *own                     # the system properties of the message that is being encoded

    def __cinit__(
        self,
        str name not None,
        bytes topic not None,
        str head not None,
        str broker not None,
        dict starts not None,  # type: dict[int, int]
        frozenset fields not None,  # type: frozenset[bytes]
        frozenset hidden not None,  # type: frozenset[bytes]
    ):
        # type: (...) -> None
        self.name, self.topic = name.encode(), topic
        self.head, self.broker = head.encode(), broker.encode()
        self.starts, self.fields, self.hidden = starts, fields, hidden
        self.own = <uint8_t *> PyMem_Malloc(OWN_BYTES)
        if self.own is NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.own)

    def encode(self, bytes records not None, Py_ssize_t at, int reconsumed_max):
        # type: (...) -> tuple[bytes, bytes, int, int] | None
        """The ReceiveMessageResponse with the record at this position, its receipt handle, and the size of the record
        and of its body. None: also if the message was delivered more often than `reconsumed_max`; -1: no limit."""
        cdef RecordView view
        cdef Known known
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(records) + at
        cdef Py_ssize_t available = PyBytes_GET_SIZE(records) - at
        cdef bytes handle
        if (
            check_record(start, available, available, False, &view) != RECORD_OK
            or view.sys_flag & COMPRESSED or view.body.length == 0 or view.born_host.length != HOST_V4_BYTES
            or view.store_host.length != HOST_V4_BYTES or view.born_time <= 0 or view.store_time <= 0
            or (reconsumed_max >= 0 and view.reconsume_times > reconsumed_max)
            or not 0 <= view.reconsume_times < 0x7FFFFFFF or not self.is_of_topic(&view.topic)
            or not self.read_properties(&view.properties, &known)
        ):
            return None
        handle = self.receipt_handle(&view)
        if handle is None or len(handle) > HANDLE_MAX:
            return None
        if known.unique_key.length == 0 or known.unique_key.length > ID_MAX:
            return None
        return self.response(&view, &known, handle), handle, view.size, view.body.length

    cdef bint is_of_topic(self, const Text *topic) noexcept:
        """Whether its record is not in a retry topic."""
        return (
            topic.length == PyBytes_GET_SIZE(self.name)
            and memcmp(topic.at, PyBytes_AS_STRING(self.name), topic.length) == 0
        )

    cdef bint read_properties(self, const Text *text, Known *known) except -1:
        """Whether all of them are known here."""
        cdef const uint8_t *at = text.at
        cdef const uint8_t *end = at + text.length
        cdef const uint8_t *stop
        cdef const uint8_t *value
        cdef bytes name
        cdef set seen = set()
        known.unique_key = known.tag = known.keys = known.born_host = known.trace_context = Text(at=NULL, length=0)
        known.user_count = 0
        if not is_utf8(at, text.length):
            return False
        while at < end:
            stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
            if stop is NULL:
                stop = end
            value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
            if value is NULL or value == at or value + 1 == stop:
                return False
            name = PyBytes_FromStringAndSize(<const char *> at, value - at)
            if name in seen or name in self.fields:
                return False
            seen.add(name)
            if not self.note(name, at, Text(at=value + 1, length=stop - value - 1), known):
                return False
            at = stop + 1
        return True

    cdef bint note(self, bytes name, const uint8_t *at, Text value, Known *known) except -1:
        if name == b"UNIQ_KEY":
            known.unique_key = value
        elif name == b"TAGS":
            known.tag = value
        elif name == b"KEYS":
            known.keys = value
        elif name == b"__BORNHOST":
            known.born_host = value
        elif name == b"TRACE_CONTEXT":
            known.trace_context = value
        elif name not in self.hidden:
            if known.user_count == USER_MAX:
                return False
            known.names[known.user_count] = Text(at=at, length=PyBytes_GET_SIZE(name))
            known.values[known.user_count] = value
            known.user_count += 1
        return True

    cdef bytes receipt_handle(self, const RecordView *view):
        """None: the pop took nothing of its queue, as of one of a retry topic."""
        start = self.starts.get(view.queue_id)
        if start is None:
            return None
        return b"%d %b 0 %b %d %d %d" % (
            start, self.head, self.broker, view.queue_id, view.queue_offset, view.physical_offset
        )

    cdef bytes response(self, const RecordView *view, const Known *known, bytes handle):
        """With gRPC's prefix."""
        cdef Py_ssize_t user_bytes = 0, size
        cdef int n
        cdef Text own = Text(at=self.own, length=self.system_properties(view, known, handle) - self.own)
        cdef Text topic = Text(at=<const uint8_t *> PyBytes_AS_STRING(self.topic), length=PyBytes_GET_SIZE(self.topic))
        cdef bytes made
        cdef uint8_t *to
        for n in range(known.user_count):
            user_bytes += field_bytes(entry_bytes(&known.names[n], &known.values[n]))
        size = field_bytes(topic.length) + user_bytes + field_bytes(own.length) + field_bytes(view.body.length)
        made = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + field_bytes(size))
        to = <uint8_t *> PyBytes_AS_STRING(made)
        to[0] = 0
        put_i32(to + 1, <int32_t> field_bytes(size))
        to = put_varint(put_key(to + PREFIX_BYTES, 2, 2), size)
        to = put_text(to, 1, &topic)
        for n in range(known.user_count):
            to = put_varint(put_key(to, 2, 2), entry_bytes(&known.names[n], &known.values[n]))
            to = put_text(to, 1, &known.names[n])
            to = put_text(to, 2, &known.values[n])
        to = put_text(to, 3, &own)
        put_text(to, 4, &view.body)
        return made

    cdef uint8_t *system_properties(self, const RecordView *view, const Known *known, bytes handle) except NULL:
        """Returns their end."""
        cdef uint8_t host[HOST_TEXT_BYTES]
        cdef Text text
        cdef uint8_t *to = self.own
        if known.tag.length > 0:
            to = put_text(to, 1, &known.tag)
        to = put_keys(to, &known.keys)
        to = put_text(to, 3, &known.unique_key)
        to = put_digest(to, &view.body)
        to = put_number(to, 5, IDENTITY)
        to = put_number(to, 6, NORMAL)
        to = put_time(to, 7, view.born_time)
        text = known.born_host
        if text.length == 0:
            text = Text(at=&host[0], length=put_address(host, view.born_host.at) - host)
        to = put_text(to, 8, &text)
        to = put_time(to, 9, view.store_time)
        text = Text(at=&host[0], length=put_address(host, view.store_host.at) - host)
        host[text.length] = c":"
        text.length = decimal(host + text.length + 1, get_i32(view.store_host.at + 4)) - host
        to = put_text(to, 10, &text)
        text = Text(at=<const uint8_t *> PyBytes_AS_STRING(handle), length=PyBytes_GET_SIZE(handle))
        to = put_text(to, 12, &text)
        if view.queue_id > 0:
            to = put_number(to, 13, view.queue_id)
        to = put_number(to, 14, view.queue_offset)
        to = put_number(to, 16, view.reconsume_times + 1)
        if known.trace_context.length > 0:
            to = put_text(to, 18, &known.trace_context)
        return to


cdef inline Py_ssize_t field_bytes(Py_ssize_t length) noexcept nogil:
    """Of a field with a small number and this many bytes."""
    return 1 + varint_bytes(length) + length


cdef inline Py_ssize_t entry_bytes(const Text *name, const Text *value) noexcept nogil:
    return field_bytes(name.length) + field_bytes(value.length)


cdef uint8_t *put_keys(uint8_t *to, const Text *keys) noexcept nogil:
    """Those between blanks."""
    cdef const uint8_t *at = keys.at
    cdef const uint8_t *end = at + keys.length
    cdef const uint8_t *stop
    cdef Text key
    while at < end:
        stop = <const uint8_t *> memchr(at, c" ", end - at)
        if stop is NULL:
            stop = end
        if stop > at:
            key = Text(at=at, length=stop - at)
            to = put_text(to, 2, &key)
        at = stop + 1
    return to


cdef uint8_t *put_digest(uint8_t *to, const Text *body) except NULL:
    cdef object made = hashlib.md5((<const char *> body.at)[:body.length], usedforsecurity=False)
    cdef bytes digest = made.hexdigest().upper().encode()
    cdef Text text = Text(at=<const uint8_t *> PyBytes_AS_STRING(digest), length=DIGEST_CHARS)
    to = put_varint(put_key(to, 4, 2), 2 + 2 + DIGEST_CHARS)
    return put_text(put_number(to, 1, MD5), 2, &text)


cdef uint8_t *put_time(uint8_t *to, int number, int64_t ms) noexcept nogil:
    """A Timestamp after 1970."""
    cdef int64_t seconds = ms // 1000, nanos = ms % 1000 * 1000000
    cdef Py_ssize_t size = 0
    if seconds > 0:
        size += 1 + varint_bytes(seconds)
    if nanos > 0:
        size += 1 + varint_bytes(nanos)
    to = put_varint(put_key(to, number, 2), size)
    if seconds > 0:
        to = put_number(to, 1, seconds)
    return put_number(to, 2, nanos) if nanos > 0 else to


cdef uint8_t *put_address(uint8_t *to, const uint8_t *address) noexcept nogil:
    """Of IPv4; 15 bytes."""
    cdef uint8_t digits[24]
    cdef uint8_t *end
    cdef int n
    for n in range(4):
        end = decimal(digits, address[n])
        memcpy(to, digits, end - digits)
        to += end - digits
        if n < 3:
            to[0] = c"."
            to += 1
    return to
