"""JSON text walked in place: no object is made, nothing is converted but whole numbers (see json.pxd)."""

from firearrow._native.wire.limits cimport DEPTH_MAX
from firearrow._native.wire.quoted cimport take_string


cdef int take_bare(Cursor *cursor, Span *span) noexcept nogil:
    """A number, true, false or null: what runs up to the next blank, comma or bracket."""
    cdef const uint8_t *at
    skip_blanks(cursor)
    at = cursor.at
    while at < cursor.end and (at[0] == 43 or at[0] == 45 or at[0] == 46 or 48 <= at[0] <= 57 or 65 <= at[0] <= 90 or 97 <= at[0] <= 122):
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
        if 48 <= span.at[n] <= 57:
            digit = True
        elif span.at[n] not in (43, 45, 46, 69, 101):
            return False
    return digit


cdef int take_int32(Cursor *cursor, int32_t *value) noexcept nogil:
    """A whole number within 32 bits; null leaves the value alone. Up to nine plain digits need no second look."""
    cdef const uint8_t *at
    cdef Span span
    cdef long long total = 0
    cdef int32_t n = 0
    cdef bint negative = False
    cdef int status
    skip_blanks(cursor)
    at = cursor.at
    while at < cursor.end and at - cursor.at < 9 and 48 <= at[0] <= 57:
        total = total * 10 + (at[0] - 48)
        at += 1
    if cursor.at < at < cursor.end and (at[0] == 44 or at[0] == 125):
        cursor.at = at
        value[0] = <int32_t> total
        return HEADER_OK
    total = 0
    status = take_bare(cursor, &span)
    if status < 0 or span.kind == SPAN_ABSENT:
        return status
    if span.at[0] == 45:
        negative = True
        n = 1
    if span.length - n > 10 or span.length == n:
        return HEADER_BAD_TYPE
    while n < span.length:
        if not 48 <= span.at[n] <= 57:
            return HEADER_BAD_TYPE
        total = total * 10 + (span.at[n] - 48)
        n += 1
    if negative:
        total = -total
    if total > 2147483647 or total < -2147483648:
        return HEADER_BAD_TYPE
    value[0] = <int32_t> total
    return HEADER_OK


cdef int skip_value(Cursor *cursor) noexcept nogil:
    """Any JSON value; brackets are balanced without recursion, strings are stepped over."""
    cdef Span span
    cdef int status, depth = 0
    while True:
        skip_blanks(cursor)
        if cursor.at == cursor.end:
            return HEADER_BAD_JSON
        if cursor.at[0] == 123 or cursor.at[0] == 91:
            depth += 1
            if depth > DEPTH_MAX:
                return HEADER_TOO_DEEP
            cursor.at += 1
        elif cursor.at[0] == 125 or cursor.at[0] == 93:
            depth -= 1
            if depth < 0:
                return HEADER_BAD_JSON
            cursor.at += 1
        elif depth > 0 and (cursor.at[0] == 44 or cursor.at[0] == 58):
            cursor.at += 1
        else:
            status = take_string(cursor, &span) if cursor.at[0] == 34 else take_bare(cursor, &span)
            if status < 0:
                return status
        if depth == 0:
            return HEADER_OK
