"""Pattern: a header that matches the last one of its connection (see pattern.pxd)."""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from firearrow._native.base.memory cimport prefetch_write_range
from firearrow._native.path.fields cimport (
    BORN_VALUE, OPAQUE_VALUE, PROPERTIES_VALUE, QUEUE_VALUE, TOPIC_VALUE,
)
from firearrow._native.wire.codes cimport SERIALIZER_JSON
from firearrow._native.wire.json cimport SPAN_ABSENT, SPAN_ESCAPED, Span
from firearrow._native.base.memory cimport fa_same
from firearrow._native.wire.json cimport scan_string_body

cdef enum:
    INT_DIGITS = 9                        # any nine digits fit in 32 bits
    LONG_DIGITS = 18
    LITERALS_SOON = 256                   # the size in most headers


cdef inline const uint8_t *number(
    const uint8_t *at, const uint8_t *end, int digits, int64_t *value
) noexcept nogil:
    """At least one digit; NULL: none, or more than `digits`."""
    cdef const uint8_t *first = at
    cdef int64_t total = 0
    while at < end and c'0' <= at[0] <= c'9':
        if at - first == digits:
            return NULL
        total = total * 10 + (at[0] - c'0')
        at += 1
    value[0] = total
    if at == first:
        return NULL
    return at


cdef class HeaderTemplate:
    def __cinit__(self):
        self.properties = PropertiesTemplate()

    cdef void prefetch(self) noexcept nogil:
        prefetch_write_range(self.literals, LITERALS_SOON)
        prefetch_write_range(self.gaps, sizeof(self.gaps) + sizeof(self.fields))
        self.properties.prefetch()

    cdef void remember(self, const Frame *frame, const SendFields *fields) noexcept nogil:
        cdef const uint8_t *at = frame.header
        cdef const uint8_t *end = at + frame.header_bytes
        cdef const Span *span
        cdef Py_ssize_t between, held = 0
        cdef int which = next_value(fields, 0)
        cdef int known = 0, taken = 0
        self.count = 0
        while which < SEND_VALUES:
            span = &fields.value[which]
            between = span.at - at
            if not 0 <= between <= LITERALS_MAX - held:
                return
            memcpy(self.literals + held, at, between)
            self.gaps[known] = TemplateField(before=<int32_t> between, which=which)
            known += 1
            held += between
            at = span.at + span.length
            taken |= 1 << which
            which = next_value(fields, taken)
        if end - at > LITERALS_MAX - held:
            return
        memcpy(self.literals + held, at, end - at)
        self.tail_bytes = <int32_t> (end - at)
        self.fields = fields[0]
        self.count = known

    cdef bint read(
        self, const Frame *frame, SendFields *fields, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil:
        """Whether it matches the last; then sets all of `fields`, and all of `done` if the properties match
        too."""
        cdef const uint8_t *at = frame.header
        cdef const uint8_t *end = at + frame.header_bytes
        cdef const uint8_t *literal = self.literals
        cdef const uint8_t *stop
        cdef const TemplateField *gap
        cdef int n
        if self.count == 0 or frame.serializer != SERIALIZER_JSON:
            return False
        fields[0] = self.fields
        for n in range(self.count):
            gap = &self.gaps[n]
            if end - at < gap.before or not fa_same(at, literal, gap.before):
                return False
            literal += gap.before
            at += gap.before
            stop = self.properties.read_properties(at, end, buffer, done) if gap.which == PROPERTIES_VALUE else NULL
            if stop is NULL:
                stop = value_at(at, end, gap.which, fields)
            if stop is NULL:
                return False
            at = stop
        return end - at == self.tail_bytes and fa_same(at, literal, self.tail_bytes)


cdef int next_value(const SendFields *fields, int taken) noexcept nogil:
    """The first value in the header that is not in `taken`; SEND_VALUES: none."""
    cdef int n, found = SEND_VALUES
    for n in range(SEND_VALUES):
        if fields.value[n].kind != SPAN_ABSENT and not taken & 1 << n:
            if found == SEND_VALUES or fields.value[n].at < fields.value[found].at:
                found = n
    return found


cdef inline const uint8_t *value_at(
    const uint8_t *at, const uint8_t *end, int which, SendFields *fields
) noexcept nogil:
    """Take the value at `at`; returns its end, NULL: it has another form."""
    cdef int64_t opaque = 0
    if which == PROPERTIES_VALUE:
        return scan_string_body(at, end, &fields.value[PROPERTIES_VALUE])
    if which == QUEUE_VALUE:
        return number(at, end, INT_DIGITS, &fields.queue_id)
    if which == BORN_VALUE:
        return number(at, end, LONG_DIGITS, &fields.born_ms)
    if which == OPAQUE_VALUE:
        at = number(at, end, INT_DIGITS, &opaque)
        fields.opaque = <int32_t> opaque
        return at
    at = scan_string_body(at, end, &fields.value[TOPIC_VALUE])
    if fields.value[TOPIC_VALUE].kind == SPAN_ESCAPED:
        return NULL
    return at
