"""Scans a command's header in place, JSON or binary (see header.pxd). Knows the members, not their meaning."""

from libc.string cimport memcmp

from firearrow._native.wire.codes cimport OTHER
from firearrow._native.wire.cursor cimport read_i16, read_i32
from firearrow._native.wire.limits cimport DEPTH_MAX

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end

cdef const char **LANGUAGES = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
]
cdef int LANGUAGES_COUNT = 14


cdef int scan_header(const uint8_t *at, Py_ssize_t length, int serializer, Header *header) noexcept nogil:
    header.code = header.language = header.version = header.opaque = header.flag = header.fields = 0
    header.remark.kind = SPAN_ABSENT
    header.remark.length = 0
    if serializer == 1:
        return scan_binary(at, length, header)
    return scan_json(at, length, header)


# ---- binary form -----------------------------------------------------------------------------------------------------

cdef int scan_binary(const uint8_t *at, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Py_ssize_t left = length - 21
    cdef int32_t remark_bytes, fields_bytes
    if left < 0:
        return HEADER_BAD_BINARY
    header.code = read_i16(at)
    header.language = at[2]
    header.version = read_i16(at + 3)
    header.opaque = read_i32(at + 5)
    header.flag = read_i32(at + 9)
    remark_bytes = read_i32(at + 13)
    if remark_bytes < 0 or remark_bytes > left:
        return HEADER_BAD_BINARY
    at += 17
    if remark_bytes > 0:
        header.remark = Span(at=at, length=remark_bytes, kind=SPAN_RAW)
        at += remark_bytes
        left -= remark_bytes
    fields_bytes = read_i32(at)
    if fields_bytes < 0 or fields_bytes > left:
        return HEADER_BAD_BINARY
    return scan_binary_fields(at + 4, at + 4 + fields_bytes, header)


cdef int scan_binary_fields(const uint8_t *at, const uint8_t *end, Header *header) noexcept nogil:
    cdef int key_bytes
    cdef int32_t value_bytes
    cdef Field *field
    while at < end:
        if header.fields == FIELDS_MAX:
            return HEADER_TOO_MANY_FIELDS
        if end - at < 2:
            return HEADER_BAD_BINARY
        key_bytes = read_i16(at)
        at += 2
        if key_bytes < 0 or end - at < key_bytes + 4:
            return HEADER_BAD_BINARY
        field = &header.field[header.fields]
        field.key = Span(at=at, length=key_bytes, kind=SPAN_RAW)
        at += key_bytes
        value_bytes = read_i32(at)
        at += 4
        if value_bytes < 0 or end - at < value_bytes:
            return HEADER_BAD_BINARY
        field.value = Span(at=at, length=value_bytes, kind=SPAN_RAW)
        at += value_bytes
        header.fields += 1
    return HEADER_OK


# ---- JSON form -------------------------------------------------------------------------------------------------------

cdef inline void skip_blanks(Cursor *cursor) noexcept nogil:
    while cursor.at < cursor.end and (cursor.at[0] == 32 or cursor.at[0] == 10 or cursor.at[0] == 13 or cursor.at[0] == 9):
        cursor.at += 1


cdef inline bint take(Cursor *cursor, uint8_t wanted) noexcept nogil:
    skip_blanks(cursor)
    if cursor.at < cursor.end and cursor.at[0] == wanted:
        cursor.at += 1
        return True
    return False


cdef int take_string(Cursor *cursor, Span *span) noexcept nogil:
    """A quoted string; the span is what stands between the quotes. Raw control characters are taken as they are."""
    cdef const uint8_t *at
    if not take(cursor, 34):
        return HEADER_BAD_JSON
    at = cursor.at
    span.at = at
    span.kind = SPAN_RAW
    while at < cursor.end:
        if at[0] == 34:
            span.length = <int32_t> (at - span.at)
            cursor.at = at + 1
            return HEADER_OK
        if at[0] == 92:
            span.kind = SPAN_ESCAPED
            at += 1
        at += 1
    return HEADER_BAD_JSON


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


cdef inline bint is_text(const Span *span, const char *text) noexcept nogil:
    cdef int32_t n = 0
    while text[n] != 0:
        n += 1
    return span.length == n and memcmp(span.at, text, n) == 0


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
    """A whole number within 32 bits; null leaves the value alone."""
    cdef Span span
    cdef long long total = 0
    cdef int32_t n = 0
    cdef bint negative = False
    cdef int status = take_bare(cursor, &span)
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


cdef int take_language(Cursor *cursor, int32_t *language) noexcept nogil:
    cdef Span span
    cdef int status, n
    skip_blanks(cursor)
    if cursor.at < cursor.end and cursor.at[0] != 34:
        return take_int32(cursor, language)
    status = take_string(cursor, &span)
    if status < 0:
        return status
    language[0] = OTHER
    for n in range(LANGUAGES_COUNT):
        if is_text(&span, LANGUAGES[n]):
            language[0] = n
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


cdef int scan_json_fields(Cursor *cursor, Header *header) noexcept nogil:
    cdef Field *field
    cdef int status
    cdef Span nothing
    skip_blanks(cursor)
    header.fields = 0
    if cursor.at < cursor.end and cursor.at[0] == 110:
        return take_bare(cursor, &nothing)
    if not take(cursor, 123):
        return HEADER_BAD_TYPE
    if take(cursor, 125):
        return HEADER_OK
    while True:
        if header.fields == FIELDS_MAX:
            return HEADER_TOO_MANY_FIELDS
        field = &header.field[header.fields]
        status = take_string(cursor, &field.key)
        if status < 0:
            return status
        if not take(cursor, 58):
            return HEADER_BAD_JSON
        skip_blanks(cursor)
        if cursor.at < cursor.end and (cursor.at[0] == 123 or cursor.at[0] == 91):
            return HEADER_BAD_TYPE
        status = take_string(cursor, &field.value) if cursor.at < cursor.end and cursor.at[0] == 34 else take_bare(cursor, &field.value)
        if status < 0:
            return status
        if field.value.kind != SPAN_ABSENT:
            header.fields += 1
        if take(cursor, 44):
            continue
        return HEADER_OK if take(cursor, 125) else HEADER_BAD_JSON


cdef int scan_json_member(Cursor *cursor, const Span *name, Header *header) noexcept nogil:
    if is_text(name, "code"):
        return take_int32(cursor, &header.code)
    if is_text(name, "extFields"):
        return scan_json_fields(cursor, header)
    if is_text(name, "flag"):
        return take_int32(cursor, &header.flag)
    if is_text(name, "language"):
        return take_language(cursor, &header.language)
    if is_text(name, "opaque"):
        return take_int32(cursor, &header.opaque)
    if is_text(name, "version"):
        return take_int32(cursor, &header.version)
    if is_text(name, "remark"):
        skip_blanks(cursor)
        if cursor.at < cursor.end and cursor.at[0] == 34:
            return take_string(cursor, &header.remark)
    return skip_value(cursor)


cdef int scan_json(const uint8_t *at, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Cursor cursor
    cdef Span name
    cdef int status
    cursor.at = at
    cursor.end = at + length
    if not take(&cursor, 123):
        return HEADER_BAD_JSON
    if not take(&cursor, 125):
        while True:
            status = take_string(&cursor, &name)
            if status < 0:
                return status
            if not take(&cursor, 58):
                return HEADER_BAD_JSON
            status = scan_json_member(&cursor, &name, header)
            if status < 0:
                return status
            if take(&cursor, 44):
                continue
            if take(&cursor, 125):
                break
            return HEADER_BAD_JSON
    skip_blanks(&cursor)
    return HEADER_OK if cursor.at == cursor.end else HEADER_BAD_JSON


# ---- escapes ---------------------------------------------------------------------------------------------------------

cdef int hex_value(uint8_t digit) noexcept nogil:
    if 48 <= digit <= 57:
        return digit - 48
    if 97 <= digit <= 102:
        return digit - 87
    if 65 <= digit <= 70:
        return digit - 55
    return -1


cdef int hex_unit(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """The UTF-16 unit of the four digits there, or -1."""
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
    if letter == 110:
        return 10
    if letter == 116:
        return 9
    if letter == 114:
        return 13
    if letter == 98:
        return 8
    if letter == 102:
        return 12
    if letter == 34 or letter == 92 or letter == 47:
        return letter
    return 0


cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil:
    """Write the text of an escaped span to `to` (room for `length` bytes); its length, or -1 for a bad escape.

    A lone surrogate becomes `?`, as Java's encoder makes it.
    """
    cdef const uint8_t *end = at + length
    cdef uint8_t *start = to
    cdef int unit, low
    while at < end:
        if at[0] != 92:
            to[0] = at[0]
            to += 1
            at += 1
            continue
        if end - at < 2:
            return -1
        if at[1] != 117:
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
        if 0xD800 <= unit < 0xDC00 and end - at >= 6 and at[0] == 92 and at[1] == 117:
            low = hex_unit(at + 2, end)
            if 0xDC00 <= low < 0xE000:
                to = put_utf8(to, 0x10000 + (unit - 0xD800 << 10) + low - 0xDC00)
                at += 6
                continue
        to = put_utf8(to, 63 if 0xD800 <= unit < 0xE000 else unit)
    return to - start


cdef str header_fault(int reason):
    if reason == HEADER_BAD_TYPE:
        return "a member of the header has the wrong type"
    if reason == HEADER_BAD_BINARY:
        return "a length inside the binary header does not fit"
    if reason == HEADER_TOO_MANY_FIELDS:
        return "the header has too many ext fields"
    if reason == HEADER_TOO_DEEP:
        return "the header is nested too deep"
    return "the header is not JSON"
