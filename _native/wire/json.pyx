"""JSON text scanned in place: makes no objects and converts only whole numbers (see json.pxd)."""

from libc.stdint cimport INT32_MAX, INT32_MIN

from firearrow._native.wire.limits cimport DEPTH_MAX
from firearrow._native.wire.quoted cimport scan_string


cdef int take_bare(Cursor *cursor, Span *span) noexcept nogil:
    """A number, true, false or null: the text up to the next blank, comma or bracket."""
    cdef const uint8_t *at
    skip_blanks(cursor)
    at = cursor.at
    while at < cursor.end and (
        at[0] == c'+' or at[0] == c'-' or at[0] == c'.'
        or c'0' <= at[0] <= c'9' or c'A' <= at[0] <= c'Z' or c'a' <= at[0] <= c'z'
    ):
        at += 1
    span.at = cursor.at
    span.length = <int32_t> (at - cursor.at)
    span.kind = SPAN_RAW
    cursor.at = at
    if span.length == 0:
        return HEADER_BAD_JSON
    if is_text(span, "null"):
        span.kind = SPAN_ABSENT
        return HEADER_OK
    if is_text(span, "true") or is_text(span, "false") or is_number(span):
        return HEADER_OK
    return HEADER_BAD_JSON


cdef bint is_number(const Span *span) noexcept nogil:
    cdef int32_t n
    cdef bint digit = False
    for n in range(span.length):
        if c'0' <= span.at[n] <= c'9':
            digit = True
        elif span.at[n] not in (c'+', c'-', c'.', c'E', c'e'):
            return False
    return digit


cdef int take_int32(Cursor *cursor, int32_t *value) noexcept nogil:
    """A 32-bit whole number; null leaves the value unchanged. Up to nine plain digits take the short path."""
    cdef const uint8_t *at
    cdef Span span
    cdef long long total = 0
    cdef int32_t n = 0
    cdef bint negative = False
    cdef int status
    skip_blanks(cursor)
    at = cursor.at
    while at < cursor.end and at - cursor.at < 9 and c'0' <= at[0] <= c'9':
        total = total * 10 + (at[0] - c'0')
        at += 1
    if cursor.at < at < cursor.end and (at[0] == c',' or at[0] == c'}'):
        cursor.at = at
        value[0] = <int32_t> total
        return HEADER_OK
    total = 0
    status = take_bare(cursor, &span)
    if status < 0 or span.kind == SPAN_ABSENT:
        return status
    if span.at[0] == c'-':
        negative = True
        n = 1
    if span.length - n > 10 or span.length == n:
        return HEADER_BAD_TYPE
    while n < span.length:
        if not c'0' <= span.at[n] <= c'9':
            return HEADER_BAD_TYPE
        total = total * 10 + (span.at[n] - c'0')
        n += 1
    if negative:
        total = -total
    if total > INT32_MAX or total < INT32_MIN:
        return HEADER_BAD_TYPE
    value[0] = <int32_t> total
    return HEADER_OK


cdef int skip_value(Cursor *cursor) noexcept nogil:
    """Skip any JSON value; brackets are counted without recursion."""
    cdef Span span
    cdef int status, depth = 0
    while True:
        skip_blanks(cursor)
        if cursor.at == cursor.end:
            return HEADER_BAD_JSON
        if cursor.at[0] == c'{' or cursor.at[0] == c'[':
            depth += 1
            if depth > DEPTH_MAX:
                return HEADER_TOO_DEEP
            cursor.at += 1
        elif cursor.at[0] == c'}' or cursor.at[0] == c']':
            depth -= 1
            if depth < 0:
                return HEADER_BAD_JSON
            cursor.at += 1
        elif depth > 0 and (cursor.at[0] == c',' or cursor.at[0] == c':'):
            cursor.at += 1
        else:
            status = scan_string(cursor, &span) if cursor.at[0] == c'"' else take_bare(cursor, &span)
            if status < 0:
                return status
        if depth == 0:
            return HEADER_OK
