"""A request to send one message, decoded in place (see send_request.pxd)."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcpy, memset

from firearrow._native.http2.proto_fields cimport BYTES, VARINT, ProtoField, next_field
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.wire.text_writer cimport decimal

cdef enum:
    # of message Message, Resource, SystemProperties and Timestamp
    TOPIC = 1
    USER_PROPERTIES = 2
    SYSTEM_PROPERTIES = 3
    BODY = 4
    NAMESPACE = 1
    NAME = 2
    ENTRY_NAME = 1
    ENTRY_VALUE = 2
    TAG = 1
    KEYS = 2
    MESSAGE_ID = 3
    BODY_ENCODING = 5
    MESSAGE_TYPE = 6
    BORN_TIMESTAMP = 7
    BORN_HOST = 8
    QUEUE_ID = 13                         # the server chooses the queue
    TRACE_CONTEXT = 18
    SECONDS = 1
    NANOS = 2

cdef enum:
    PROPERTY_BYTES_MAX = 16384            # of message_checks.py
    MESSAGE_ID_MAX = 255
    HOST_MAX = 255
    TRACE_MAX = 4096
    NANOS_END = 1000000000

cdef int64_t SECONDS_MAX = 253402300799   # the end of the year 9999


cdef bint read_request(const uint8_t *at, Py_ssize_t length, SendRequest *found) noexcept nogil:
    cdef ProtoField field
    memset(found, 0, sizeof(found[0]))
    if next_field(at, at + length, &field) != at + length or field.number != 1 or field.kind != BYTES:
        return False
    return (
        read_message(field.at, field.at + field.length, found)
        and found.topic.length > 0 and found.body.length > 0 and is_checked(found)
    )


cdef bint read_message(const uint8_t *at, const uint8_t *end, SendRequest *found) noexcept nogil:
    cdef ProtoField field
    cdef int seen = 0
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != BYTES or field.number > BODY:
            return False
        if field.number == USER_PROPERTIES:
            if not read_user_property(field.at, field.at + field.length, found):
                return False
            continue
        if is_second(&field, &seen):
            return False
        if field.number == TOPIC:
            if not read_resource(field.at, field.at + field.length, &found.topic):
                return False
        elif field.number == SYSTEM_PROPERTIES:
            if not read_system_properties(field.at, field.at + field.length, found):
                return False
        elif field.number == BODY:
            found.body = Text(at=field.at, length=field.length)
        else:
            return False
    return seen == (1 << TOPIC | 1 << SYSTEM_PROPERTIES | 1 << BODY)


cdef bint read_resource(const uint8_t *at, const uint8_t *end, Text *name) noexcept nogil:
    cdef ProtoField field
    cdef Text text
    cdef int seen = 0
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != BYTES or field.number > NAME or is_second(&field, &seen):
            return False
        text = Text(at=field.at, length=field.length)
        if not is_printable(&text):
            return False
        if field.number == NAME:
            name[0] = text
        elif field.number != NAMESPACE:
            return False
    return True


cdef bint read_user_property(const uint8_t *at, const uint8_t *end, SendRequest *found) noexcept nogil:
    cdef ProtoField field
    cdef Text *to
    cdef int seen = 0
    if found.user_count == USER_MAX:
        return False
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != BYTES or field.number > ENTRY_VALUE or is_second(&field, &seen):
            return False
        if field.number == ENTRY_NAME:
            to = &found.names[found.user_count]
        elif field.number == ENTRY_VALUE:
            to = &found.values[found.user_count]
        else:
            return False
        to[0] = Text(at=field.at, length=field.length)
        if field.length == 0 or has_controls(to):
            return False
    found.user_count += 1
    return seen == (1 << ENTRY_NAME | 1 << ENTRY_VALUE)


cdef bint read_system_properties(const uint8_t *at, const uint8_t *end, SendRequest *found) noexcept nogil:
    cdef ProtoField field
    cdef Text text
    cdef int seen = 0
    cdef int64_t kind = 0
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.number > TRACE_CONTEXT:
            return False
        if field.number != KEYS and is_second(&field, &seen):
            return False
        if field.kind == VARINT:
            if field.number == BODY_ENCODING:
                found.encoding = <int64_t> field.value
            elif field.number == MESSAGE_TYPE:
                kind = <int64_t> field.value
            elif field.number != QUEUE_ID:
                return False
            continue
        if field.kind != BYTES:
            return False
        if field.number == BORN_TIMESTAMP:
            if not read_time(field.at, field.at + field.length, &found.born_ms):
                return False
            continue
        text = Text(at=field.at, length=field.length)
        if not is_printable(&text) or not set_text(&field, &text, found):
            return False
    return kind == NORMAL and 0 <= found.encoding <= GZIP


cdef bint set_text(const ProtoField *field, const Text *text, SendRequest *found) noexcept nogil:
    if field.number == TAG:
        found.tag = text[0]
        return not is_blank(text) and memchr(text.at, c"|", text.length) is NULL
    if field.number == KEYS:
        if found.key_count == KEYS_MAX or is_blank(text):
            return False
        found.keys[found.key_count] = text[0]
        found.key_count += 1
        return True
    if field.number == MESSAGE_ID:
        found.message_id = text[0]
        return not is_blank(text) and text.length <= MESSAGE_ID_MAX
    if field.number == BORN_HOST:
        found.born_host = text[0]
        return text.length <= HOST_MAX and (
            text.length == 0 or (text.at[0] != c" " and text.at[text.length - 1] != c" ")
        )
    if field.number == TRACE_CONTEXT:
        found.trace_context = text[0]
        return text.length <= TRACE_MAX
    return False


cdef bint read_time(const uint8_t *at, const uint8_t *end, int64_t *ms) noexcept nogil:
    """Of a Timestamp from 1970 to 9999."""
    cdef ProtoField field
    cdef int seen = 0
    cdef int64_t seconds = 0, nanos = 0
    while at < end:
        at = next_field(at, end, &field)
        if at is NULL or field.kind != VARINT or field.number > NANOS or is_second(&field, &seen):
            return False
        if field.number == SECONDS:
            seconds = <int64_t> field.value
        elif field.number == NANOS:
            nanos = <int64_t> field.value
        else:
            return False
    ms[0] = 0
    if not (0 <= seconds <= SECONDS_MAX and 0 <= nanos < NANOS_END):
        return False
    ms[0] = seconds * 1000 + nanos // 1000000
    return True


cdef bint is_checked(const SendRequest *found) noexcept nogil:
    """What concerns several fields."""
    cdef Py_ssize_t size = found.tag.length
    cdef int n
    for n in range(found.key_count):
        size += found.keys[n].length
    for n in range(found.user_count):
        size += found.names[n].length + found.values[n].length
    return size <= PROPERTY_BYTES_MAX and found.message_id.length > 0


cdef bint is_printable(const Text *text) noexcept nogil:
    """ASCII without control characters."""
    cdef Py_ssize_t n
    for n in range(text.length):
        if not 0x20 <= text.at[n] < 0x7F:
            return False
    return True


cdef bint has_controls(const Text *text) noexcept nogil:
    """Control characters of ASCII and Latin-1, in UTF-8; whether it is valid is checked with all properties."""
    cdef Py_ssize_t n
    for n in range(text.length):
        if text.at[n] < 0x20 or text.at[n] == 0x7F:
            return True
        if text.at[n] == 0xC2 and n + 1 < text.length and text.at[n + 1] < 0xA0:
            return True
    return False


cdef bint is_blank(const Text *text) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(text.length):
        if text.at[n] != c" ":
            return False
    return True


# ---- properties ----

cdef Py_ssize_t write_properties(
    const SendRequest *request, const Text *born_host, int64_t born_ms, uint8_t *to
) noexcept nogil:
    """The properties as remoting has them, in the order of `properties_from`; `born_host`: if the request has none.
    At most PROPERTIES_BYTES."""
    cdef uint8_t *start = to
    cdef uint8_t digits[24]
    cdef Text number
    cdef int n
    for n in range(request.user_count):
        to = put_pair(to, &request.names[n], &request.values[n])
    to = put_named(to, b"UNIQ_KEY", 8, &request.message_id)
    memcpy(to, b"WAIT\x01true\x02", 10)
    to += 10
    if request.tag.length > 0:
        to = put_named(to, b"TAGS", 4, &request.tag)
    if request.key_count > 0:
        to = put_keys(to, request)
    if request.trace_context.length > 0:
        to = put_named(to, b"TRACE_CONTEXT", 13, &request.trace_context)
    number = Text(at=&digits[0], length=decimal(digits, born_ms) - digits)
    to = put_named(to, b"BORN_TIMESTAMP", 14, &number)
    to = put_named(to, b"__BORNHOST", 10, &request.born_host if request.born_host.length > 0 else born_host)
    return put_named(to, b"PGROUP", 6, &request.topic) - start


cdef inline uint8_t *put_pair(uint8_t *to, const Text *name, const Text *value) noexcept nogil:
    memcpy(to, name.at, name.length)
    to += name.length
    to[0] = NAME_VALUE_SEPARATOR
    memcpy(to + 1, value.at, value.length)
    to += 1 + value.length
    to[0] = PROPERTY_SEPARATOR
    return to + 1


cdef inline uint8_t *put_named(uint8_t *to, const char *name, Py_ssize_t length, const Text *value) noexcept nogil:
    cdef Text text = Text(at=<const uint8_t *> name, length=length)
    return put_pair(to, &text, value)


cdef uint8_t *put_keys(uint8_t *to, const SendRequest *request) noexcept nogil:
    cdef int n
    memcpy(to, b"KEYS\x01", 5)
    to += 5
    for n in range(request.key_count):
        memcpy(to, request.keys[n].at, request.keys[n].length)
        to += request.keys[n].length
        to[0] = c" "
        to += 1
    to[-1] = PROPERTY_SEPARATOR
    return to
