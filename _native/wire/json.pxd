# JSON text scanned in place: strings, numbers and literals are found, not converted. Nothing is owned; a Span
# points into the text and is invalid after it. A Span of kind SPAN_ESCAPED still has its escapes; `unescape`
# decodes them to UTF-8: `to` needs a capacity of `length` bytes, since decoded text is never longer. The
# cursor functions return 0 or a negative HEADER_* reason and leave the cursor after what they took. Strings
# are scanned sixteen bytes at a step, inline: each module that cimports this compiles its own copy. Any
# thread.

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, strlen
from libc.stdint cimport uint8_t


cdef extern from "wire/quotes.h" nogil:
    const uint8_t *fa_quote_or_escape(const uint8_t *at, const uint8_t *end) noexcept
    Py_ssize_t fa_copy_plain(const uint8_t *at, const uint8_t *end, uint8_t *to) noexcept
    Py_ssize_t fa_copy_ascii(const uint8_t *at, const uint8_t *end, uint8_t *to) noexcept


cdef inline const uint8_t *scan_string_body(const uint8_t *at, const uint8_t *end, Span *span) noexcept nogil:
    """The text up to its closing quote; returns the position of that quote, NULL: there is none. Raw control
    characters are taken as they are."""
    span.at = at
    span.kind = SPAN_RAW
    at = fa_quote_or_escape(at, end)
    while at < end and at[0] != c'"':
        span.kind = SPAN_ESCAPED
        if end - at <= 2:
            return NULL
        at = fa_quote_or_escape(at + 2, end)
    if at == end:
        return NULL
    span.length = <int32_t> (at - span.at)
    return at


cdef inline int scan_string(Cursor *cursor, Span *span) noexcept nogil:
    """A quoted string; the span is the text between the quotes."""
    cdef const uint8_t *at
    if not accept(cursor, c'"'):
        return HEADER_BAD_JSON
    at = scan_string_body(cursor.at, cursor.end, span)
    if at is NULL:
        return HEADER_BAD_JSON
    cursor.at = at + 1
    return HEADER_OK


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


cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil
