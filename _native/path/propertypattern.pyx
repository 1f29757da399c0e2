"""PropertiesTemplate: properties that match the last ones of their connection (see propertypattern.pxd)."""

from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.base.memory cimport prefetch_write_range
from firearrow._native.path.completion cimport GIVEN_BYTES_MAX, is_false
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from firearrow._native.base.memory cimport prefetch_write_range
from firearrow._native.store.log.record cimport Text, clear
from firearrow._native.wire.json cimport SPAN_ESCAPED
from firearrow._native.base.memory cimport fa_copy_piece, fa_same
from firearrow._native.wire.json cimport fa_copy_ascii

cdef enum:
    SEPARATOR_BYTES = 6                   # escaped, as in a header
    NAMES_SOON = 64                       # bytes of the names in most messages

cdef enum PropertyMeaning:
    NONE, UNIQUE_KEY, KEYS, TAGS, WAIT

cdef const char *BEHIND_NAME = b"\\u0001"
cdef const char *BEHIND_VALUE = b"\\u0002"


cdef inline bint begins(
    const uint8_t *at, const uint8_t *end, const void *text, Py_ssize_t length
) noexcept nogil:
    return end - at >= length and fa_same(at, <const uint8_t *> text, length)


cdef inline int meaning_of(const Text *name, const uint8_t *value, const CompletedProperties *done) noexcept nogil:
    if value == done.found.unique_key.at:
        return UNIQUE_KEY
    if value == done.found.keys.at:
        return KEYS
    if value == done.found.tags.at:
        return TAGS
    return WAIT if name.length == 4 and memcmp(name.at, b"WAIT", 4) == 0 else NONE


cdef class PropertiesTemplate:
    cdef void prefetch(self) noexcept nogil:
        prefetch_write_range(self.literals, NAMES_SOON)
        prefetch_write_range(self.names, sizeof(self.names) + sizeof(self.count))

    cdef void remember(self, const Span *given, const CompletedProperties *done) noexcept nogil:
        """`done`: the result of `take_given` for it."""
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
            self.names[known] = PropertyName(length=<int32_t> name.length, meaning=meaning_of(&name, value.at, done))
            known += 1
            if not self.is_ended or not begins(at, end, literal, name.length + SEPARATOR_BYTES):
                return
            at += name.length + SEPARATOR_BYTES
            literal += name.length + SEPARATOR_BYTES
            if not begins(at, end, value.at, value.length):
                return
            at += value.length
            self.is_ended = begins(at, end, BEHIND_VALUE, SEPARATOR_BYTES)
            at += SEPARATOR_BYTES if self.is_ended else 0
            name.at = value.at + value.length + 1
        if at == end:
            self.count = known

    cdef const uint8_t *read_properties(
        self, const uint8_t *at, const uint8_t *end, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil:
        """Take the properties up to their closing quote, with the result of `take_given`. Returns the
        position of that quote, NULL: they do not match."""
        cdef const uint8_t *literal = self.literals
        cdef const uint8_t *stop = at + min(end - at, <Py_ssize_t> GIVEN_BYTES_MAX)
        cdef uint8_t *to = buffer
        cdef const PropertyName *name
        cdef Py_ssize_t length
        cdef int n
        if self.count == 0:
            return NULL
        done.waits = True
        clear(&done.found)
        for n in range(self.count):
            name = &self.names[n]
            if not begins(at, stop, literal, name.length + SEPARATOR_BYTES):
                return NULL
            fa_copy_piece(to, literal, name.length)
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
                if not begins(at, stop, BEHIND_VALUE, SEPARATOR_BYTES):
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
