"""A message's properties, completed in place (see send_properties.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memset

from firearrow._native.fastpath.request_fields cimport is_ascii
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.wire.json cimport unescape
from firearrow._native.wire.json cimport SPAN_ABSENT, SPAN_ESCAPED

cdef enum:
    NAMES_MAX = 32
    SPECIAL_COUNT = 11

cdef const char **SPECIAL = [
    "DELAY", "TRAN_MSG", "_SYS_MSG_PRIORITY_", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "POP_CK",
    "INNER_NUM", "MSG_REGION", "TRACE_ON", "CLUSTER", "__LITE_TOPIC",
]
cdef int *SPECIAL_LENGTHS = [5, 8, 18, 20, 24, 6, 9, 10, 8, 7, 12]


cdef bint read_given(const Span *given, uint8_t *buffer, CompletedProperties *done):
    """Read the client's properties. False: not handled here. Does not raise."""
    cdef Py_ssize_t length = 0
    done.waits, done.ordered = True, False
    memset(&done.found, 0, sizeof(done.found))
    if given.kind != SPAN_ABSENT:
        if given.length > GIVEN_BYTES_MAX:
            return False
        if given.kind == SPAN_ESCAPED:
            length = unescape(given.at, given.length, buffer)
        else:
            length = given.length
            memcpy(buffer, given.at, length)
        if length < 0 or not is_text(buffer, length) or not walk(buffer, length, done):
            return False
        if length > 0 and buffer[length - 1] != PROPERTY_SEPARATOR:
            buffer[length] = PROPERTY_SEPARATOR
            length += 1
    done.text.at = buffer
    done.text.length = length
    return True


cdef void add_unique_key(UniqueIds ids, int64_t now_ms, uint8_t *buffer, CompletedProperties *done) noexcept:
    """Append a unique key to the client's properties, which have none."""
    cdef uint8_t *to = buffer + done.text.length
    memcpy(to, b"UNIQ_KEY\x01", 9)
    ids.write(<char *> to + 9, now_ms)
    to[9 + ids.length] = PROPERTY_SEPARATOR
    done.found.unique_key = Text(at=to + 9, length=ids.length)
    done.text.length += ids.length + 10


cdef bint add(bytes added, uint8_t *buffer, CompletedProperties *done):
    """Append the properties that the broker adds to every message; the last step."""
    if len(added) > ADDED_BYTES_MAX:
        return False
    memcpy(buffer + done.text.length, PyBytes_AS_STRING(added), len(added))
    done.text.length += len(added)
    return True


cdef bint is_text(const uint8_t *at, Py_ssize_t length):
    """Whether it is valid UTF-8: other text would be stored changed."""
    if is_ascii(at, length):
        return True
    try:
        PyUnicode_DecodeUTF8(<const char *> at, length, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint walk(const uint8_t *at, Py_ssize_t length, CompletedProperties *done) noexcept nogil:
    """Check each `name 0x01 value 0x02`."""
    cdef const uint8_t *end = at + length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef Text seen[NAMES_MAX]
    cdef int names = 0
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop is NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value is NULL or value == at or value + 1 == stop or names == NAMES_MAX:
            return False
        seen[names] = Text(at=at, length=value - at)
        if is_among(&seen[names], seen, names):
            return False
        names += 1
        if not note(at, value - at, value + 1, stop - value - 1, done):
            return False
        at = stop + 1
    return True


cdef inline bint is_among(const Text *name, const Text *seen, int names) noexcept nogil:
    cdef int n
    for n in range(names):
        if seen[n].length == name.length and memcmp(seen[n].at, name.at, name.length) == 0:
            return True
    return False


cdef bint note(
    const uint8_t *name, Py_ssize_t length, const uint8_t *value, Py_ssize_t value_bytes,
    CompletedProperties *done,
) noexcept nogil:
    """Note a property that matters to a send; False: it needs more than storing."""
    cdef int n
    if length == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        done.found.unique_key = Text(at=value, length=value_bytes)
        return True
    if length == 4:
        if memcmp(name, b"WAIT", 4) == 0:
            done.waits = not is_false(value, value_bytes)
        elif memcmp(name, b"TAGS", 4) == 0:
            done.found.tags = Text(at=value, length=value_bytes)
        elif memcmp(name, b"KEYS", 4) == 0:
            done.found.keys = Text(at=value, length=value_bytes)
        return True
    if length == 13 and memcmp(name, b"__SHARDINGKEY", 13) == 0:
        done.ordered = True
        return True
    if length >= 6 and memcmp(name, b"TIMER_", 6) == 0:
        return False
    for n in range(SPECIAL_COUNT):
        if length == SPECIAL_LENGTHS[n] and memcmp(name, SPECIAL[n], length) == 0:
            return False
    return True


cdef bint is_false(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Whether the text is `false` in any case."""
    cdef const char *letters = "false"
    cdef int n
    if length != 5:
        return False
    for n in range(5):
        if (at[n] | 0x20) != <int> letters[n]:
            return False
    return True
