# Strings of JSON text, scanned sixteen bytes at a step. Inline: each module that cimports it compiles its own
# copy. Borrows the text, keeps nothing. Any thread.

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.wire.json cimport (
    HEADER_BAD_JSON, HEADER_OK, SPAN_ESCAPED, SPAN_RAW, Cursor, Span, accept,
)

cdef extern from "quotes.h" nogil:
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
