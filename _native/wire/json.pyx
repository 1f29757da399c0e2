"""JSON text scanned in place: makes no objects and converts only whole numbers (see json.pxd).

Decodes the escapes of a JSON string to UTF-8 (see json.pxd).
"""

from libc.stdint cimport INT32_MAX, INT32_MIN
from firearrow._native.wire.limits cimport DEPTH_MAX


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
    """A 32-bit whole number; null leaves the value unchanged. Plain digits take the short path."""
    cdef const uint8_t *at
    cdef Span span
    cdef long long total = 0
    cdef int32_t n = 0
    cdef bint negative = False
    cdef int status
    skip_blanks(cursor)
    at = cursor.at
    while at < cursor.end and at - cursor.at < 10 and c'0' <= at[0] <= c'9':
        total = total * 10 + (at[0] - c'0')
        at += 1
    if cursor.at < at < cursor.end and (at[0] == c',' or at[0] == c'}') and total <= INT32_MAX:
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


cdef int hex_value(uint8_t digit) noexcept nogil:
    if c'0' <= digit <= c'9':
        return digit - c'0'
    if c'a' <= digit <= c'f':
        return digit - c'a' + 10
    if c'A' <= digit <= c'F':
        return digit - c'A' + 10
    return -1


cdef int hex_unit(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """The UTF-16 unit of the four hex digits at `at`, or -1."""
    cdef int n, digit, unit = 0
    if end - at < 4:
        return -1
    for n in range(4):
        digit = hex_value(at[n])
        if digit < 0:
            return -1
        unit = unit * 16 + digit
    return unit


cdef uint8_t *put_utf8(uint8_t *to, unsigned int point) noexcept nogil:
    if point < 0x80:
        to[0] = <uint8_t> point
        return to + 1
    if point < 0x800:
        to[0] = <uint8_t> (0xC0 | point >> 6)
        to[1] = <uint8_t> (0x80 | point & 0x3F)
        return to + 2
    if point < 0x10000:
        to[0] = <uint8_t> (0xE0 | point >> 12)
        to[1] = <uint8_t> (0x80 | point >> 6 & 0x3F)
        to[2] = <uint8_t> (0x80 | point & 0x3F)
        return to + 3
    to[0] = <uint8_t> (0xF0 | point >> 18)
    to[1] = <uint8_t> (0x80 | point >> 12 & 0x3F)
    to[2] = <uint8_t> (0x80 | point >> 6 & 0x3F)
    to[3] = <uint8_t> (0x80 | point & 0x3F)
    return to + 4


cdef uint8_t simple_escape(uint8_t letter) noexcept nogil:
    if letter == c'n':
        return c'\n'
    if letter == c't':
        return c'\t'
    if letter == c'r':
        return c'\r'
    if letter == c'b':
        return c'\b'
    if letter == c'f':
        return c'\f'
    if letter == c'"' or letter == c'\\' or letter == c'/':
        return letter
    return 0


cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil:
    """Decode an escaped span to `to` (capacity `length` bytes). Returns the decoded length, -1: a bad escape.

    A lone surrogate becomes `?`, as in Java's encoder.
    """
    cdef const uint8_t *end = at + length
    cdef uint8_t *start = to
    cdef int unit, low
    cdef Py_ssize_t plain
    while at < end:
        if at[0] != c'\\':
            to[0] = at[0]
            plain = 1 + fa_copy_plain(at + 1, end, to + 1)
            to += plain
            at += plain
            continue
        if end - at >= 6 and at[1] == c'u' and at[2] == c'0' and at[3] == c'0' and c'0' <= at[4] < c'8':
            unit = hex_value(at[5])
            if unit >= 0:
                to[0] = <uint8_t> ((at[4] - c'0') << 4 | unit)
                to += 1
                at += 6
                continue
        if end - at < 2:
            return -1
        if at[1] != c'u':
            to[0] = simple_escape(at[1])
            if to[0] == 0:
                return -1
            to += 1
            at += 2
            continue
        unit = hex_unit(at + 2, end)
        if unit < 0:
            return -1
        at += 6
        if 0xD800 <= unit < 0xDC00 and end - at >= 6 and at[0] == c'\\' and at[1] == c'u':
            low = hex_unit(at + 2, end)
            if 0xDC00 <= low < 0xE000:
                to = put_utf8(to, 0x10000 + (unit - 0xD800 << 10) + low - 0xDC00)
                at += 6
                continue
        to = put_utf8(to, c'?' if 0xD800 <= unit < 0xE000 else unit)
    return to - start
