# Strings of JSON text, found sixteen bytes at a step. Inline: each module that cimports it compiles its own copy.

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.wire.json cimport HEADER_BAD_JSON, HEADER_OK, SPAN_ESCAPED, SPAN_RAW, Cursor, Span, take

cdef extern from "quotes.h" nogil:
    const uint8_t *fa_quote_or_escape(const uint8_t *at, const uint8_t *end) noexcept
    Py_ssize_t fa_copy_plain(const uint8_t *at, const uint8_t *end, uint8_t *to) noexcept


cdef inline int take_string(Cursor *cursor, Span *span) noexcept nogil:
    """A quoted string; the span is what stands between the quotes. Raw control characters are taken as they are."""
    cdef const uint8_t *at
    if not take(cursor, 34):
        return HEADER_BAD_JSON
    span.at = cursor.at
    span.kind = SPAN_RAW
    at = fa_quote_or_escape(cursor.at, cursor.end)
    while at < cursor.end:
        if at[0] == 34:
            span.length = <int32_t> (at - span.at)
            cursor.at = at + 1
            return HEADER_OK
        span.kind = SPAN_ESCAPED
        at += 2
        if at < cursor.end:
            at = fa_quote_or_escape(at, cursor.end)
    return HEADER_BAD_JSON
