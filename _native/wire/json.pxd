# JSON text scanned in place: strings, numbers and literals are found, not converted. Nothing is owned; a Span
# points into the text and is invalid after it. A Span of kind SPAN_ESCAPED still has its escapes; `unescape`
# (escape.pxd) decodes them. Every function returns 0 or a negative HEADER_* reason and leaves the cursor
# after what it took. Any thread.

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, strlen

cdef enum SpanKind:
    SPAN_ABSENT = 0
    SPAN_RAW = 1
    SPAN_ESCAPED = 2

cdef struct Span:
    const uint8_t *at
    int32_t length
    int32_t kind

cdef enum:
    HEADER_OK = 0
    HEADER_BAD_JSON = -1
    HEADER_BAD_TYPE = -2          # a member has the wrong type
    HEADER_BAD_BINARY = -3        # an inner length does not fit
    HEADER_TOO_MANY_FIELDS = -4
    HEADER_TOO_DEEP = -5

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline void skip_blanks(Cursor *cursor) noexcept nogil:
    while (
        cursor.at < cursor.end
        and cursor.at[0] <= c' '
        and (cursor.at[0] == c' ' or cursor.at[0] == c'\n' or cursor.at[0] == c'\r' or cursor.at[0] == c'\t')
    ):
        cursor.at += 1


cdef inline bint accept(Cursor *cursor, uint8_t expected) noexcept nogil:
    skip_blanks(cursor)
    if cursor.at < cursor.end and cursor.at[0] == expected:
        cursor.at += 1
        return True
    return False


cdef inline bint is_text(const Span *span, const char *text) noexcept nogil:
    cdef size_t length = strlen(text)
    return <size_t> span.length == length and memcmp(span.at, text, length) == 0


cdef int take_bare(Cursor *cursor, Span *span) noexcept nogil
cdef int take_int32(Cursor *cursor, int32_t *value) noexcept nogil
cdef int skip_value(Cursor *cursor) noexcept nogil
