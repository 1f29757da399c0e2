"""ReceivedMessage: a message as a consumer gets it, decoded on first use (see received_message.pxd)."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp

from socket import AF_INET, AF_INET6, inet_ntop

from firearrow._native.base.endian cimport get_i16, get_i32, get_i64
from firearrow._native.store.files.layout cimport (
    AFTER_BORN_HOST_STORE_HOST, AFTER_STORE_HOST_BODY, AFTER_STORE_HOST_PREPARED, AT_BORN_HOST, AT_BORN_TIME,
    AT_CRC, HOST_V4_BYTES, HOST_V6_BYTES, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, SYS_BORN_V6,
    SYS_COMPRESSED, SYS_INNER_BATCH, SYS_NEED_UNWRAP, SYS_STORE_V6,
)
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, check_record

from firearrow._native.store.log.record import FAULTS, RecordError

cdef enum:
    SYS_UNWRAP = SYS_INNER_BATCH | SYS_NEED_UNWRAP
    ITEM_AT_FLAG = 12
    ITEM_AT_BODY = 20             # size, magic, crc, flag, body length
    ITEM_BYTES_MIN = 22           # … and the length of properties


@cython.final
@cython.no_gc
cdef class Source:
    def __cinit__(self):
        self.records = self.texts = NO_RECORD


cdef bytes NO_RECORD = bytes(128)
cdef Source NOTHING = Source.__new__(Source)


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class ReceivedMessage:
    """One received message; fields are decoded on first use. It keeps its whole response alive.

    Setting a field changes this object only. It can be copied and pickled; a copy is equal, and keeps only
    its own bytes alive. Any thread.
    """

    def __cinit__(self):
        self.source = NOTHING

    def __init__(self):
        raise TypeError("received messages come from decode_messages")

    # ---- copies and equality ----

    def __reduce__(self):
        """Only this message's bytes, not its whole response."""
        cdef const uint8_t *header = self.header()
        cdef Py_ssize_t header_bytes = header_bytes_of(self.sys_flag)
        cdef const uint8_t *texts = <const uint8_t *> PyBytes_AS_STRING(self.source.texts)
        known = self.own_body is not None
        if self.own_properties is None and self.put is not None:
            self.properties  # merges them
        return _restored, (
            bytes_at(header, header_bytes),
            self.topic,
            None if known else bytes_at(texts + self.body_at, self.body_bytes),
            self.own_body,
            self.body_bytes,
            self.source.opener if self.packed and not known else None,
            bytes_at(texts + self.properties_at, self.properties_bytes),
            None if self.own_properties is None else dict(self.own_properties),
            (self.source.min_offset, self.source.max_offset),
            (self.store_size, self.flag, self.sys_flag, self.physical_offset, self.inner),
            (self.queue_id, self.reconsume_times, self.queue_offset, self.broker_name, self.queue),
        )

    def __eq__(self, other):
        if self is other:
            return True
        if type(other) is not ReceivedMessage:
            return NotImplemented
        return identity_of(self) == identity_of(other) and (
            self.topic == other.topic and self.body == other.body and self.properties == other.properties
        )

    def __hash__(self):
        return hash((self.physical_offset, self.store_timestamp))

    # ---- the header ----

    cdef const uint8_t *header(self) noexcept:
        return <const uint8_t *> PyBytes_AS_STRING(self.source.records) + self.start

    @property
    def body_crc(self):
        # type: (...) -> int
        return get_i32(self.header() + AT_CRC)

    @property
    def born_timestamp(self):
        # type: (...) -> int
        """ms since 1970, by the producer's clock."""
        return get_i64(self.header() + AT_BORN_TIME)

    @property
    def store_timestamp(self):
        # type: (...) -> int
        """ms since 1970, by the broker's clock."""
        return get_i64(self.header() + AT_BORN_HOST + born_host_bytes(self.sys_flag))

    @property
    def prepared_transaction_offset(self):
        # type: (...) -> int
        if self.inner:
            return 0
        return get_i64(store_host_of(self) + store_host_bytes(self.sys_flag) + AFTER_STORE_HOST_PREPARED)

    @property
    def born_host(self):
        # type: (...) -> str
        """`ip:port`, or `[ip]:port` (IPv6)."""
        return host_text(self.header() + AT_BORN_HOST, born_host_bytes(self.sys_flag))

    @property
    def store_host(self):
        # type: (...) -> str
        return host_text(store_host_of(self), store_host_bytes(self.sys_flag))

    @property
    def offset_message_id(self):
        # type: (...) -> str
        """Broker address and physical offset, in hex."""
        cdef bytes host = bytes_at(store_host_of(self), store_host_bytes(self.sys_flag))
        return (host + (<object> self.physical_offset).to_bytes(8, "big", signed=True)).hex().upper()

    @property
    def message_id(self):
        # type: (...) -> str
        """The producer's unique id; without one, `offset_message_id`."""
        unique = self.find("UNIQ_KEY", 8)
        return unique if unique is not None else self.offset_message_id

    @property
    def transaction_id(self):
        # type: (...) -> str | None
        cdef str prepared = self.find("TRAN_MSG", 8)
        return self.find("UNIQ_KEY", 8) if prepared is not None and prepared.lower() == "true" else None

    # ---- topic and body ----

    @property
    def topic(self):
        # type: (...) -> str
        cdef const uint8_t *at
        cdef const char *known
        cdef Py_ssize_t known_bytes
        if self.own_topic is None:
            at = <const uint8_t *> PyBytes_AS_STRING(self.source.records) + self.topic_at
            if self.source.topic is not None:
                known = PyUnicode_AsUTF8AndSize(self.source.topic, &known_bytes)
                if known_bytes == self.topic_bytes and memcmp(known, at, known_bytes) == 0:
                    self.own_topic = self.source.topic
                    return self.own_topic
            self.own_topic = self.source.topic = text_at(at, self.topic_bytes)
        return self.own_topic

    @topic.setter
    def topic(self, str topic not None):
        # type: (str) -> None
        self.own_topic = topic

    @property
    def body(self):
        # type: (...) -> bytes
        """Decompressed on first use if needed; raises what the opener raises."""
        if self.own_body is None:
            stored = bytes_at(
                <const uint8_t *> PyBytes_AS_STRING(self.source.texts) + self.body_at, self.body_bytes
            )
            self.own_body = self.source.opener(self.sys_flag, stored) if self.packed else stored
        return self.own_body

    @body.setter
    def body(self, bytes body not None):
        # type: (bytes) -> None
        self.own_body = body

    # ---- properties ----

    @property
    def properties(self):
        # type: (...) -> dict[str, str]
        """The message's own dict, created on first use; changes are kept."""
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef ParsedProperty parsed
        cdef dict found
        if self.own_properties is None:
            found = {}
            at = <const uint8_t *> PyBytes_AS_STRING(self.source.texts) + self.properties_at
            end = at + self.properties_bytes
            while at < end:
                at = next_property(at, end, &parsed)
                if parsed.whole:
                    found[text_at(parsed.name, parsed.name_bytes)] = text_at(parsed.value, parsed.value_bytes)
            if self.source.min_offset is not None:
                found["MIN_OFFSET"] = self.source.min_offset
            if self.source.max_offset is not None:
                found["MAX_OFFSET"] = self.source.max_offset
            if self.put is not None:
                found.update(self.put)
                self.put = None
            self.own_properties = found
        return self.own_properties

    def get_property(self, str name not None, str default=None):
        # type: (...) -> str | None
        """One property, without creating the dict."""
        cdef str value = self.text_of(name)
        return default if value is None else value

    def put_property(self, str name not None, str value not None):
        # type: (...) -> None
        """Set one property, without creating the dict."""
        if self.own_properties is not None:
            self.own_properties[name] = value
        elif self.put is None:
            self.put = {name: value}
        else:
            self.put[name] = value

    @property
    def tags(self):
        # type: (...) -> str | None
        return self.find("TAGS", 4)

    @property
    def keys(self):
        # type: (...) -> tuple[str, ...]
        cdef str keys = self.find("KEYS", 4)
        return () if keys is None else tuple([key for key in keys.split(" ") if key])

    cdef str text_of(self, str name):
        cdef Py_ssize_t name_bytes
        cdef const char *utf8 = PyUnicode_AsUTF8AndSize(name, &name_bytes)
        return self.find(utf8, name_bytes)

    cdef str find(self, const char *name, Py_ssize_t name_bytes):
        """The current value, without creating the dict: the record is scanned. The last of equal names
        wins."""
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef ParsedProperty parsed
        cdef ParsedProperty found
        if self.own_properties is not None:
            return self.own_properties.get(text_at(<const uint8_t *> name, name_bytes))
        if self.put is not None:
            value = self.put.get(text_at(<const uint8_t *> name, name_bytes))
            if value is not None:
                return value
        if name_bytes == 10 and self.source.min_offset is not None and memcmp(name, "MIN_OFFSET", 10) == 0:
            return self.source.min_offset
        if name_bytes == 10 and self.source.max_offset is not None and memcmp(name, "MAX_OFFSET", 10) == 0:
            return self.source.max_offset
        at = <const uint8_t *> PyBytes_AS_STRING(self.source.texts) + self.properties_at
        end = at + self.properties_bytes
        found.whole = False
        while at < end:
            at = next_property(at, end, &parsed)
            if (
                parsed.whole and parsed.name_bytes == name_bytes
                and memcmp(parsed.name, name, name_bytes) == 0
            ):
                found = parsed
        return text_at(found.value, found.value_bytes) if found.whole else None

    def __repr__(self):
        return (
            f"ReceivedMessage({self.topic!r}, {self.broker_name!r}, queue {self.queue_id}, "
            f"offset {self.queue_offset}, "
            f"id {self.message_id}, {self.body_bytes} bytes)"
        )


# ---- strings and hosts -------------------------------------------------------------------------------------

cdef struct ParsedProperty:
    bint whole                    # a name and a value, neither empty
    const uint8_t *name
    const uint8_t *value
    Py_ssize_t name_bytes, value_bytes


cdef inline const uint8_t *next_property(
    const uint8_t *at, const uint8_t *end, ParsedProperty *parsed
) noexcept nogil:
    """Parse the property at `at`, up to the separator; returns where the next one starts."""
    cdef const uint8_t *stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
    if stop is NULL:
        stop = end
    parsed.name = at
    parsed.value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
    parsed.whole = parsed.value is not NULL and parsed.value > at and parsed.value + 1 < stop
    if parsed.whole:
        parsed.name_bytes = parsed.value - at
        parsed.value += 1
        parsed.value_bytes = stop - parsed.value
    return stop + 1


cdef inline str text_at(const uint8_t *at, Py_ssize_t length):
    return PyUnicode_DecodeUTF8(<const char *> at, length, "replace")


cdef inline bytes bytes_at(const uint8_t *at, Py_ssize_t length):
    return PyBytes_FromStringAndSize(<const char *> at, length)


cdef inline Py_ssize_t born_host_bytes(int32_t sys_flag) noexcept nogil:
    return HOST_V6_BYTES if sys_flag & SYS_BORN_V6 else HOST_V4_BYTES


cdef inline Py_ssize_t store_host_bytes(int32_t sys_flag) noexcept nogil:
    return HOST_V6_BYTES if sys_flag & SYS_STORE_V6 else HOST_V4_BYTES


cdef inline const uint8_t *store_host_of(ReceivedMessage message) noexcept:
    return message.header() + AT_BORN_HOST + born_host_bytes(message.sys_flag) + AFTER_BORN_HOST_STORE_HOST


cdef inline Py_ssize_t header_bytes_of(int32_t sys_flag) noexcept:
    """Up to the length of the body, which is not part of it."""
    return (
        AT_BORN_HOST + born_host_bytes(sys_flag) + AFTER_BORN_HOST_STORE_HOST + store_host_bytes(sys_flag)
        + AFTER_STORE_HOST_BODY
    )


cdef str host_text(const uint8_t *at, Py_ssize_t length):
    cdef int32_t port = get_i32(at + length - 4)
    if length == HOST_V4_BYTES:
        return f"{inet_ntop(AF_INET, bytes_at(at, 4))}:{port}"
    return f"[{inet_ntop(AF_INET6, bytes_at(at, 16))}]:{port}"


# ---- copies ------------------------------------------------------------------------------------------------

cdef tuple identity_of(ReceivedMessage message):
    return (
        message.physical_offset, message.queue_offset, message.queue_id, message.broker_name, message.queue,
        message.reconsume_times, message.flag, message.sys_flag, message.store_size, message.body_bytes,
        bytes_at(message.header(), header_bytes_of(message.sys_flag)),
    )


def _restored(
    bytes header not None, str topic not None, bytes stored, bytes body, int32_t body_bytes, opener,
    bytes properties not None, dict own_properties, tuple offsets not None, tuple fixed not None,
    tuple variable not None,
):
    """The message that `__reduce__` took apart: `records` is its header, `texts` its body and properties."""
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    cdef Source source = Source.__new__(Source)
    message.store_size, message.flag, message.sys_flag, message.physical_offset, message.inner = fixed
    if len(header) != header_bytes_of(message.sys_flag) or (stored is None) == (body is None):
        raise ValueError("a pickled message that is not whole")
    source.records = header
    source.texts = properties if stored is None else stored + properties
    source.opener = opener
    source.min_offset, source.max_offset = offsets
    message.source = source
    message.own_topic = topic
    message.own_body = body
    message.own_properties = own_properties
    message.body_bytes = body_bytes if stored is None else <int32_t> len(stored)
    message.packed = stored is not None and opener is not None
    message.properties_at = 0 if stored is None else message.body_bytes
    message.properties_bytes = <int32_t> len(properties)
    (
        message.queue_id, message.reconsume_times, message.queue_offset, message.broker_name, message.queue,
    ) = variable
    return message


# ---- decoding ----------------------------------------------------------------------------------------------

def decode_messages(
    bytes body not None,
    str broker_name not None,
    opener not None,  # type: Callable[[int, bytes], bytes]
    *,
    queue=None,  # type: Any
    min_offset=None,  # type: int | None
    max_offset=None,  # type: int | None
    int64_t offset_delta=0,
    tags=None,  # type: Set[str] | None
):
    # type: (...) -> list[ReceivedMessage]
    """The messages of one response, inner batches expanded. RecordError: a record is truncated or its lengths
    do not add up.

    `opener(sys_flag, stored)` decompresses a body. `queue` (a MessageQueue) is set in every message, with its
    id; `min_offset` and `max_offset` set the properties MIN_OFFSET and MAX_OFFSET; `offset_delta` is added to
    the queue offsets (static topics). With `tags` (not empty) only messages with one of these tags are
    returned."""
    cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(body)
    cdef Py_ssize_t length = len(body)
    cdef Py_ssize_t at = 0
    cdef int state
    cdef RecordView view
    cdef ReceivedMessage message
    cdef list messages = []
    cdef int32_t queue_id = -1
    cdef Source source = Source.__new__(Source)
    if length > 0x7FFFFFFF:
        raise RecordError(f"a response of {length} bytes: at most 2 GiB can be decoded")
    source.records = source.texts = body
    source.opener = opener
    source.min_offset = None if min_offset is None else str(min_offset)
    source.max_offset = None if max_offset is None else str(max_offset)
    if queue is not None:
        queue_id = queue.queue_id
    while at < length:
        state = check_record(base + at, length - at, length, False, &view)
        if state != RECORD_OK:
            raise RecordError(f"message {len(messages)} at byte {at} of {length}: {FAULTS[state]}")
        message = message_of(source, &view, base, <int32_t> at)
        message.broker_name = broker_name
        message.queue = queue
        message.queue_offset += offset_delta
        if queue is not None:
            message.queue_id = queue_id
        if message.sys_flag & SYS_UNWRAP == SYS_UNWRAP:
            unwrap(message, messages)
        else:
            messages.append(message)
        at += view.size
    if not tags:
        return messages
    return [kept for kept in messages if (<ReceivedMessage> kept).find("TAGS", 4) in tags]


cdef inline ReceivedMessage message_of(
    Source source, const RecordView *view, const uint8_t *base, int32_t start
):
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    message.source = source
    message.start = start
    message.store_size = view.size
    message.topic_at = <int32_t> (view.topic.at - base)
    message.topic_bytes = <int32_t> view.topic.length
    message.body_at = <int32_t> (view.body.at - base)
    message.body_bytes = <int32_t> view.body.length
    message.properties_at = <int32_t> (view.properties.at - base)
    message.properties_bytes = <int32_t> view.properties.length
    message.queue_id = view.queue_id
    message.flag = view.flag
    message.sys_flag = view.sys_flag
    message.queue_offset = view.queue_offset
    message.physical_offset = view.physical_offset
    message.reconsume_times = view.reconsume_times
    message.packed = view.sys_flag & SYS_COMPRESSED
    return message


cdef int unwrap(ReceivedMessage outer, list messages) except -1:
    """Expand an inner batch: each item becomes a message with the outer's physical offset, hosts and
    times."""
    cdef bytes texts = outer.body
    cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(texts)
    cdef Py_ssize_t length = len(texts)
    cdef Py_ssize_t at = 0
    cdef int64_t number = 0
    cdef ReceivedMessage message
    cdef Source source = Source.__new__(Source)
    source.records = outer.source.records
    source.texts = texts
    source.min_offset = outer.source.min_offset
    source.max_offset = outer.source.max_offset
    source.topic = outer.topic
    if length > 0x7FFFFFFF:
        raise RecordError(f"an inner batch of {length} bytes: at most 2 GiB can be decoded")
    while at < length:
        message = item_of(outer, source, base, <int32_t> at, length)
        message.queue_offset = outer.queue_offset + number
        messages.append(message)
        at += message.store_size
        number += 1
    return 0


cdef ReceivedMessage item_of(
    ReceivedMessage outer, Source source, const uint8_t *base, int32_t start, Py_ssize_t length
):
    cdef ReceivedMessage message = ReceivedMessage.__new__(ReceivedMessage)
    cdef const uint8_t *at = base + start
    cdef int32_t size, body_bytes, properties_at
    if length - start < ITEM_BYTES_MIN:
        raise RecordError(f"item at byte {start} of an inner batch: it is truncated")
    size = get_i32(at)
    body_bytes = get_i32(at + ITEM_AT_BODY - 4)
    if not ITEM_BYTES_MIN <= size <= length - start or not 0 <= body_bytes <= size - ITEM_BYTES_MIN:
        raise RecordError(f"item at byte {start} of an inner batch: its lengths do not add up")
    properties_at = ITEM_BYTES_MIN + body_bytes
    if properties_at + get_i16(at + properties_at - 2) != size:
        raise RecordError(f"item at byte {start} of an inner batch: its lengths do not add up")
    message.source = source
    message.inner = True
    message.start = outer.start
    message.store_size = size
    message.topic_at = outer.topic_at
    message.topic_bytes = outer.topic_bytes
    message.body_at = start + ITEM_AT_BODY
    message.body_bytes = body_bytes
    message.properties_at = start + properties_at
    message.properties_bytes = size - properties_at
    message.queue_id = outer.queue_id
    message.flag = get_i32(at + ITEM_AT_FLAG)
    message.sys_flag = outer.sys_flag
    message.physical_offset = outer.physical_offset
    message.broker_name = outer.broker_name
    message.queue = outer.queue
    return message
