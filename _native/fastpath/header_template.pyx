"""HeaderTemplate: reads a header that differs from the connection's last one only in its values.

PropertiesTemplate: likewise for the properties in it (see header_template.pxd).
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.base.memory cimport fa_copy_short, fa_same, prefetch_write_range
from firearrow._native.fastpath.request_fields cimport (
    BORN_VALUE, OPAQUE_VALUE, PROPERTIES_VALUE, QUEUE_VALUE,
)
from firearrow._native.fastpath.send_properties cimport GIVEN_BYTES_MAX, is_false
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.store.log.record cimport Text, clear
from firearrow._native.wire.codes cimport SERIALIZER_JSON
from firearrow._native.wire.json cimport (
    SPAN_ABSENT, SPAN_ESCAPED, Span, fa_copy_ascii, scan_string_body, unescape,
)


cdef enum:
    SEPARATOR_BYTES = 6                   # escaped, as in a header
    NAMES_SOON = 64                       # bytes of the names in most messages

cdef enum PropertyMeaning:
    NONE, UNIQUE_KEY, KEYS, TAGS, WAIT, SHARDING_KEY

cdef const char *BEHIND_NAME = b"\\u0001"
cdef const char *AFTER_VALUE = b"\\u0002"


cdef inline bint begins(
    const uint8_t *at, const uint8_t *end, const void *text, Py_ssize_t length
) noexcept nogil:
    return end - at >= length and fa_same(at, <const uint8_t *> text, length)


cdef inline int meaning_of(
    const Text *name, const uint8_t *value, const CompletedProperties *done
) noexcept nogil:
    if value == done.found.unique_key.at:
        return UNIQUE_KEY
    if value == done.found.keys.at:
        return KEYS
    if value == done.found.tags.at:
        return TAGS
    if name.length == 13 and memcmp(name.at, b"__SHARDINGKEY", 13) == 0:
        return SHARDING_KEY
    return WAIT if name.length == 4 and memcmp(name.at, b"WAIT", 4) == 0 else NONE


cdef class PropertiesTemplate:
    cdef void prefetch(self) noexcept nogil:
        prefetch_write_range(self.literals, NAMES_SOON)
        prefetch_write_range(self.names, sizeof(self.names) + sizeof(self.count))

    cdef void remember(self, const Span *given, const CompletedProperties *done) noexcept nogil:
        """`done`: the result of `read_given` for it."""
        cdef const uint8_t *at = given.at
        cdef const uint8_t *end = at + given.length
        cdef const uint8_t *stop = done.text.at + done.text.length
        cdef uint8_t *literal = self.literals
        cdef Text name = Text(at=done.text.at, length=0)
        cdef Text value
        cdef int known = 0
        if self.count > 0 and not self.is_unsure:
            self.is_unsure = True
            return
        self.count, self.is_ended, self.is_unsure = 0, True, False
        if given.kind != SPAN_ESCAPED:
            return
        while name.at < stop:
            name.length = <const uint8_t *> memchr(name.at, NAME_VALUE_SEPARATOR, stop - name.at) - name.at
            value.at = name.at + name.length + 1
            value.length = <const uint8_t *> memchr(value.at, PROPERTY_SEPARATOR, stop - value.at) - value.at
            if (
                known == PROPERTIES_MAX
                or name.length + SEPARATOR_BYTES > self.literals + NAMES_BYTES_MAX - literal
            ):
                return
            memcpy(literal, name.at, name.length)
            memcpy(literal + name.length, BEHIND_NAME, SEPARATOR_BYTES)
            self.names[known] = PropertyName(
                length=<int32_t> name.length, meaning=meaning_of(&name, value.at, done)
            )
            known += 1
            if not self.is_ended or not begins(at, end, literal, name.length + SEPARATOR_BYTES):
                return
            at += name.length + SEPARATOR_BYTES
            literal += name.length + SEPARATOR_BYTES
            if not begins(at, end, value.at, value.length):
                return
            at += value.length
            self.is_ended = begins(at, end, AFTER_VALUE, SEPARATOR_BYTES)
            at += SEPARATOR_BYTES if self.is_ended else 0
            name.at = value.at + value.length + 1
        if at == end:
            self.count = known

    cdef const uint8_t *read_properties(
        self, const uint8_t *at, const uint8_t *end, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil:
        """Take the properties up to their closing quote, with the result of `read_given`. Returns the
        position of that quote, NULL: they do not match."""
        cdef const uint8_t *literal = self.literals
        cdef const uint8_t *stop = at + min(end - at, <Py_ssize_t> GIVEN_BYTES_MAX)
        cdef uint8_t *to = buffer
        cdef const PropertyName *name
        cdef Py_ssize_t length
        cdef int n
        if self.count == 0:
            return NULL
        done.waits, done.ordered = True, False
        clear(&done.found)
        for n in range(self.count):
            name = &self.names[n]
            if not begins(at, stop, literal, name.length + SEPARATOR_BYTES):
                return NULL
            fa_copy_short(to, literal, name.length)
            to[name.length] = NAME_VALUE_SEPARATOR
            literal += name.length + SEPARATOR_BYTES
            at += name.length + SEPARATOR_BYTES
            to += name.length + 1
            length = fa_copy_ascii(at, stop, to)
            if length == 0:
                return NULL
            note(name.meaning, Text(at=to, length=length), done)
            at += length
            to += length
            to[0] = PROPERTY_SEPARATOR
            to += 1
            if n + 1 < self.count or self.is_ended:
                if not begins(at, stop, AFTER_VALUE, SEPARATOR_BYTES):
                    return NULL
                at += SEPARATOR_BYTES
        if at == end or at[0] != c'"':
            return NULL
        self.is_unsure = False
        done.text = Text(at=buffer, length=to - buffer)
        return at


cdef inline void note(int meaning, Text value, CompletedProperties *done) noexcept nogil:
    if meaning == UNIQUE_KEY:
        done.found.unique_key = value
    elif meaning == KEYS:
        done.found.keys = value
    elif meaning == TAGS:
        done.found.tags = value
    elif meaning == WAIT:
        done.waits = not is_false(value.at, value.length)
    elif meaning == SHARDING_KEY:
        done.ordered = True


cdef enum:
    INT_DIGITS = 10
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


cdef inline const uint8_t *request_number(
    const uint8_t *at, const uint8_t *end, int32_t *value
) noexcept nogil:
    """Any 32-bit number: after 2147483647, Java's clients go on with -2147483648. NULL: it is none."""
    cdef bint negative = at < end and at[0] == c'-'
    cdef int64_t total = 0
    at = number(at + negative, end, INT_DIGITS, &total)
    if negative:
        total = -total
    if at is NULL or total != <int32_t> total:
        return NULL
    value[0] = <int32_t> total
    return at


cdef class SigningPlan:
    cdef bint add_changing(self, int which) noexcept nogil:
        """False: there is no room."""
        if self.count == PIECES_MAX:
            return False
        self.pieces[self.count] = Piece(which=which, at=0, length=0)
        self.count += 1
        return True

    cdef bint add_constant(self, const Span *value) noexcept nogil:
        """Copy the value, unescaped. False: there is no room, or it is malformed."""
        cdef Py_ssize_t length = value.length
        if value.length > LITERALS_MAX - self.used:
            return False
        if value.kind == SPAN_ESCAPED:
            length = unescape(value.at, value.length, self.constants + self.used)
            if length < 0:
                return False
        else:
            memcpy(self.constants + self.used, value.at, length)
        if self.count == 0 or self.pieces[self.count - 1].which >= 0:
            if not self.add_changing(-1):
                return False
            self.pieces[self.count - 1].at = self.used
        self.pieces[self.count - 1].length += <int32_t> length
        self.used += <int32_t> length
        return True


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
        cdef Py_ssize_t between, used = 0
        cdef int which = next_value(fields, 0)
        cdef int known = 0, taken = 0
        self.count = self.properties.count = 0
        while which < SEND_VALUES:
            span = &fields.value[which]
            between = span.at - at
            if not 0 <= between <= LITERALS_MAX - used:
                return
            memcpy(self.literals + used, at, between)
            self.gaps[known] = TemplateField(before=<int32_t> between, which=which)
            known += 1
            used += between
            at = span.at + span.length
            taken |= 1 << which
            which = next_value(fields, taken)
        if end - at > LITERALS_MAX - used:
            return
        memcpy(self.literals + used, at, end - at)
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
            stop = NULL
            if gap.which == PROPERTIES_VALUE:
                stop = self.properties.read_properties(at, end, buffer, done)
                fields.value[PROPERTIES_VALUE].kind = SPAN_ESCAPED
            if stop is NULL:
                stop = value_at(at, end, gap.which, fields)
            if stop is NULL:
                return False
            fields.value[gap.which].at = at
            fields.value[gap.which].length = <int32_t> (stop - at)
            at = stop
        return end - at == self.tail_bytes and fa_same(at, literal, self.tail_bytes)


cdef HeaderTemplate with_header(HeaderTemplate first, const Frame *frame, const SendFields *fields):
    """The list with a template of this header in front. The one that was not used for the longest time leaves
    a full list."""
    cdef HeaderTemplate before = None
    cdef HeaderTemplate found = first
    cdef int count = 1 if first is not None else 0
    while found is not None and found.following is not None:
        before, found = found, found.following
        count += 1
    if count == TEMPLATES_MAX:
        before.following = None
    else:
        found = HeaderTemplate.__new__(HeaderTemplate)
    found.remember(frame, fields)
    if found is not first:
        found.following = first
    return found


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
    if which == PROPERTIES_VALUE:
        return scan_string_body(at, end, &fields.value[PROPERTIES_VALUE])
    if which == QUEUE_VALUE:
        return number(at, end, INT_DIGITS, &fields.queue_id)
    if which == BORN_VALUE:
        return number(at, end, LONG_DIGITS, &fields.born_ms)
    if which == OPAQUE_VALUE:
        return request_number(at, end, &fields.opaque)
    at = scan_string_body(at, end, &fields.value[which])
    if fields.value[which].kind == SPAN_ESCAPED:
        return NULL
    return at
