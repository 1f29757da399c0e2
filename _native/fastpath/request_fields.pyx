"""Ext fields of sends and pulls, decoded in place (see request_fields.pxd)."""

from libc.string cimport memcmp

from firearrow._native.wire.codes cimport FLAG_ONEWAY
from firearrow._native.wire.json cimport SPAN_ABSENT, SPAN_ESCAPED, SPAN_RAW

cdef enum:
    INT_MAX = 2147483647
    DIGITS_MAX = 18

cdef int64_t LONG_MAX = 999999999999999999
cdef const char *TRUE = b"true"

cdef enum:
    # in the order of the letters of SEND_MESSAGE_V2; a signature has no letter
    GROUP, TOPIC, DEFAULT_TOPIC, DEFAULT_QUEUES, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUME, UNIT,
    MAX_RECONSUME, BATCH, SIGNATURE, SEND_FIELDS

cdef enum:
    CONSUMER_GROUP, PULL_TOPIC, PULL_QUEUE_ID, QUEUE_OFFSET, MAX_COUNT, PULL_SYS_FLAG, COMMIT_OFFSET, SUSPEND,
    SUBSCRIPTION, VERSION, EXPRESSION_TYPE, REQUEST_SOURCE, LITE_TOPIC, PULL_FIELDS

cdef const char **LONG_NAMES = [
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
    "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "Signature",
]
cdef int *LONG_LENGTHS = [13, 5, 12, 21, 7, 7, 13, 4, 10, 14, 8, 17, 5, 9]
cdef const char **PULL_NAMES = [
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "requestSource",
    "liteTopic",
]
cdef int *PULL_LENGTHS = [13, 5, 7, 11, 10, 7, 12, 20, 12, 10, 14, 13, 9]


cdef int name_of(const Span *key, const char **names, const int *lengths, int count) noexcept nogil:
    """Index of the name; -1: none of them, -2: it has escapes."""
    cdef int n
    if key.kind != SPAN_RAW:
        return -2
    for n in range(count):
        if key.length == lengths[n] and memcmp(key.at, names[n], key.length) == 0:
            return n
    return -1


cdef bint whole_number(const Span *span, int64_t low, int64_t high, int64_t *value) noexcept nogil:
    """Decimal digits with an optional minus, within bounds."""
    cdef int64_t total = 0
    cdef int32_t n = 0
    cdef bint negative = span.kind == SPAN_RAW and span.length > 1 and span.at[0] == c'-'
    if span.kind != SPAN_RAW or not negative < span.length <= DIGITS_MAX + negative:
        return False
    for n in range(negative, span.length):
        if not c'0' <= span.at[n] <= c'9':
            return False
        total = total * 10 + (span.at[n] - c'0')
    value[0] = -total if negative else total
    return low <= value[0] <= high


cdef inline bint int_or(const Span *span, int64_t default, int64_t *value) noexcept nogil:
    if span.kind == SPAN_ABSENT:
        value[0] = default
        return True
    return whole_number(span, -LONG_MAX, LONG_MAX, value)


cdef bint is_ascii(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint8_t every = 0
    cdef Py_ssize_t n
    for n in range(length):
        every |= at[n]
    return every < 0x80


cdef bint is_true(const Span *span) noexcept nogil:
    """As Java's `Boolean.parseBoolean`: C++ clients write `0` and `1`, and both are false."""
    cdef int n
    if span.length != 4:
        return False
    for n in range(4):
        if span.at[n] | 0x20 != TRUE[n]:
            return False
    return True


cdef inline int name_of_letter(const Span *key) noexcept nogil:
    """Like `name_of`, for SEND_MESSAGE_V2."""
    cdef int which
    if key.kind != SPAN_RAW:
        return -2
    if key.length == 1:
        which = key.at[0] - c'a'
        return which if 0 <= which < SIGNATURE else -1
    return SIGNATURE if key.length == 9 and memcmp(key.at, b"Signature", 9) == 0 else -1


cdef bint send_fields(const Header *header, bint long_names, SendFields *found) noexcept nogil:
    """All required and optional fields of a send; the last of equal names counts. Escapes outside the
    properties are not handled: an invalid one must close the connection."""
    cdef Span field[SEND_FIELDS]
    cdef int64_t number
    cdef int n, which
    for n in range(SEND_FIELDS):
        field[n].kind = SPAN_ABSENT
        field[n].length = 0
    if header.remark.kind == SPAN_ESCAPED:
        return False
    for n in range(header.fields):
        if long_names:
            which = name_of(&header.field[n].key, LONG_NAMES, LONG_LENGTHS, SEND_FIELDS)
        else:
            which = name_of_letter(&header.field[n].key)
        if which == -2 or (header.field[n].value.kind == SPAN_ESCAPED and which != PROPERTIES):
            return False
        if which >= 0:
            field[which] = header.field[n].value
    if (
        field[GROUP].kind == SPAN_ABSENT
        or field[TOPIC].kind != SPAN_RAW
        or field[DEFAULT_TOPIC].kind == SPAN_ABSENT
    ):
        return False
    if (
        not whole_number(&field[DEFAULT_QUEUES], -INT_MAX, INT_MAX, &number)
        or not whole_number(&field[QUEUE_ID], 0, INT_MAX, &found.queue_id)
    ):
        return False
    if not whole_number(&field[BORN], -LONG_MAX, LONG_MAX, &found.born_ms):
        return False
    found.value[OPAQUE_VALUE], found.value[TOPIC_VALUE] = header.opaque_text, field[TOPIC]
    found.value[QUEUE_VALUE], found.value[BORN_VALUE] = field[QUEUE_ID], field[BORN]
    found.value[PROPERTIES_VALUE], found.value[SIGNATURE_VALUE] = field[PROPERTIES], field[SIGNATURE]
    found.opaque, found.oneway = header.opaque, header.flag & FLAG_ONEWAY != 0
    if not whole_number(&field[SYS_FLAG], -INT_MAX, INT_MAX, &number):
        return False
    found.sys_flag = <int32_t> number
    if not whole_number(&field[FLAG], -INT_MAX, INT_MAX, &number):
        return False
    found.flag = <int32_t> number
    if not int_or(&field[RECONSUME], 0, &number) or not -INT_MAX <= number <= INT_MAX:
        return False
    found.reconsume_times = <int32_t> number
    found.batch = is_true(&field[BATCH])
    return True


cdef bint pull_fields(const Header *header, PullFields *found) noexcept nogil:
    """Like `send_fields`. Pulls by a proxy or of a lite topic are not handled."""
    cdef Span field[PULL_FIELDS]
    cdef int n, which
    for n in range(PULL_FIELDS):
        field[n].kind = SPAN_ABSENT
        field[n].length = 0
    if header.remark.kind == SPAN_ESCAPED:
        return False
    for n in range(header.fields):
        which = name_of(&header.field[n].key, PULL_NAMES, PULL_LENGTHS, PULL_FIELDS)
        if which == -2 or header.field[n].value.kind == SPAN_ESCAPED:
            return False
        if which >= 0:
            field[which] = header.field[n].value
    if (
        field[CONSUMER_GROUP].kind != SPAN_RAW
        or field[PULL_TOPIC].kind != SPAN_RAW
        or field[REQUEST_SOURCE].kind != SPAN_ABSENT
        or field[LITE_TOPIC].kind != SPAN_ABSENT
    ):
        return False
    found.group, found.topic = field[CONSUMER_GROUP], field[PULL_TOPIC]
    found.expression, found.expression_type = field[SUBSCRIPTION], field[EXPRESSION_TYPE]
    return (
        whole_number(&field[PULL_QUEUE_ID], 0, INT_MAX, &found.queue_id)
        and whole_number(&field[QUEUE_OFFSET], 0, LONG_MAX, &found.queue_offset)
        and whole_number(&field[MAX_COUNT], -INT_MAX, INT_MAX, &found.max_messages)
        and whole_number(&field[PULL_SYS_FLAG], -INT_MAX, INT_MAX, &found.flags)
        and int_or(&field[COMMIT_OFFSET], 0, &found.commit_offset)
        and int_or(&field[SUSPEND], 0, &found.suspend_ms)
        and int_or(&field[VERSION], 0, &found.version)
    )
