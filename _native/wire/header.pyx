"""Header: scans a command's header in place, JSON or binary (see header.pxd)."""

from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i16, get_i32
from firearrow._native.wire.codes cimport OTHER, SERIALIZER_ROCKETMQ
from firearrow._native.wire.json cimport (
    HEADER_BAD_BINARY, HEADER_BAD_JSON, HEADER_BAD_TYPE, HEADER_OK, HEADER_TOO_DEEP, HEADER_TOO_MANY_FIELDS,
    SPAN_ABSENT, SPAN_RAW, Cursor, skip_blanks, skip_value, accept, take_bare, take_int32,
)
from firearrow._native.wire.json cimport scan_string, scan_string_body

cdef const char **LANGUAGES = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
]
cdef int *LANGUAGE_LENGTHS = [4, 3, 6, 6, 6, 6, 4, 5, 4, 2, 3, 3, 4, 7]
cdef int LANGUAGES_COUNT = 14

cdef enum:
    # of the binary form: code i16, language u8, version i16, opaque i32, flag i32, remark i32 + bytes,
    # ext fields i32 + bytes
    AT_LANGUAGE = 2
    AT_VERSION = 3
    AT_OPAQUE = 5
    AT_FLAG = 9
    AT_REMARK_BYTES = 13
    AT_REMARK = 17
    BINARY_BYTES_MIN = 21
    KEY_LENGTH_BYTES = 2
    LENGTH_BYTES = 4

cdef enum:
    NOT_OF_THIS_FORM = 1
    LETTER_FIELD_BYTES = 6        # with an empty value


cdef int scan_header(const uint8_t *at, Py_ssize_t length, int serializer, Header *header) noexcept nogil:
    header.code = header.language = header.version = header.opaque = header.flag = header.fields = 0
    header.remark.kind = header.opaque_text.kind = SPAN_ABSENT
    header.remark.length = 0
    if serializer == SERIALIZER_ROCKETMQ:
        return scan_binary(at, length, header)
    return scan_json(at, length, header)


# ---- binary form -------------------------------------------------------------------------------------------

cdef int scan_binary(const uint8_t *at, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Py_ssize_t left = length - BINARY_BYTES_MIN
    cdef int32_t remark_bytes, fields_bytes
    if left < 0:
        return HEADER_BAD_BINARY
    header.code = get_i16(at)
    header.language = at[AT_LANGUAGE]
    header.version = get_i16(at + AT_VERSION)
    header.opaque = get_i32(at + AT_OPAQUE)
    header.flag = get_i32(at + AT_FLAG)
    remark_bytes = get_i32(at + AT_REMARK_BYTES)
    if remark_bytes < 0 or remark_bytes > left:
        return HEADER_BAD_BINARY
    at += AT_REMARK
    if remark_bytes > 0:
        header.remark = Span(at=at, length=remark_bytes, kind=SPAN_RAW)
        at += remark_bytes
        left -= remark_bytes
    fields_bytes = get_i32(at)
    if fields_bytes < 0 or fields_bytes > left:
        return HEADER_BAD_BINARY
    return scan_binary_fields(at + LENGTH_BYTES, at + LENGTH_BYTES + fields_bytes, header)


cdef int scan_binary_fields(const uint8_t *at, const uint8_t *end, Header *header) noexcept nogil:
    cdef int key_bytes
    cdef int32_t value_bytes
    cdef Field *field
    while at < end:
        if header.fields == FIELDS_MAX:
            return HEADER_TOO_MANY_FIELDS
        if end - at < KEY_LENGTH_BYTES:
            return HEADER_BAD_BINARY
        key_bytes = get_i16(at)
        at += KEY_LENGTH_BYTES
        if key_bytes < 0 or end - at < key_bytes + LENGTH_BYTES:
            return HEADER_BAD_BINARY
        field = &header.field[header.fields]
        field.key = Span(at=at, length=key_bytes, kind=SPAN_RAW)
        at += key_bytes
        value_bytes = get_i32(at)
        at += LENGTH_BYTES
        if value_bytes < 0 or end - at < value_bytes:
            return HEADER_BAD_BINARY
        field.value = Span(at=at, length=value_bytes, kind=SPAN_RAW)
        at += value_bytes
        header.fields += 1
    return HEADER_OK


# ---- JSON form ---------------------------------------------------------------------------------------------

cdef int take_language(Cursor *cursor, int32_t *language) noexcept nogil:
    cdef Span span
    cdef int status, n
    skip_blanks(cursor)
    if cursor.at < cursor.end and cursor.at[0] != c'"':
        return take_int32(cursor, language)
    status = scan_string(cursor, &span)
    if status < 0:
        return status
    language[0] = OTHER
    for n in range(LANGUAGES_COUNT):
        if span.length == LANGUAGE_LENGTHS[n] and memcmp(span.at, LANGUAGES[n], span.length) == 0:
            language[0] = n
            break
    return HEADER_OK


cdef int scan_json_fields(Cursor *cursor, Header *header) noexcept nogil:
    cdef Field *field
    cdef int status
    cdef Span nothing
    skip_blanks(cursor)
    header.fields = 0
    if cursor.at < cursor.end and cursor.at[0] == c'n':
        return take_bare(cursor, &nothing)
    if not accept(cursor, c'{'):
        return HEADER_BAD_TYPE
    if accept(cursor, c'}'):
        return HEADER_OK
    while True:
        if header.fields == FIELDS_MAX:
            return HEADER_TOO_MANY_FIELDS
        field = &header.field[header.fields]
        status = take_letter_field(cursor, field)
        if status == NOT_OF_THIS_FORM:
            status = take_field(cursor, field)
        if status < 0:
            return status
        if field.value.kind != SPAN_ABSENT:
            header.fields += 1
        if accept(cursor, c','):
            continue
        return HEADER_OK if accept(cursor, c'}') else HEADER_BAD_JSON


cdef inline int take_letter_field(Cursor *cursor, Field *field) noexcept nogil:
    """`"x":"value"` without blanks, as nearly all fields of sends are; otherwise NOT_OF_THIS_FORM."""
    cdef const uint8_t *at = cursor.at
    if (
        cursor.end - at < LETTER_FIELD_BYTES or at[0] != c'"' or at[2] != c'"' or at[3] != c':'
        or at[4] != c'"' or at[1] == c'"' or at[1] == c'\\'
    ):
        return NOT_OF_THIS_FORM
    field.key = Span(at=at + 1, length=1, kind=SPAN_RAW)
    at = scan_string_body(at + 5, cursor.end, &field.value)
    if at is NULL:
        return HEADER_BAD_JSON
    cursor.at = at + 1
    return HEADER_OK


cdef int take_field(Cursor *cursor, Field *field) noexcept nogil:
    cdef int status = scan_string(cursor, &field.key)
    if status < 0:
        return status
    if not accept(cursor, c':'):
        return HEADER_BAD_JSON
    skip_blanks(cursor)
    if cursor.at < cursor.end and (cursor.at[0] == c'{' or cursor.at[0] == c'['):
        return HEADER_BAD_TYPE
    if cursor.at < cursor.end and cursor.at[0] == c'"':
        return scan_string(cursor, &field.value)
    return take_bare(cursor, &field.value)


cdef int take_opaque(Cursor *cursor, Header *header) noexcept nogil:
    cdef int status
    skip_blanks(cursor)
    header.opaque_text = Span(at=cursor.at, length=0, kind=SPAN_RAW)
    status = take_int32(cursor, &header.opaque)
    header.opaque_text.length = <int32_t> (cursor.at - header.opaque_text.at)
    return status


cdef int scan_json_member(Cursor *cursor, const Span *name, Header *header) noexcept nogil:
    cdef const uint8_t *at = name.at
    if name.length == 4 and memcmp(at, b"code", 4) == 0:
        return take_int32(cursor, &header.code)
    if name.length == 9 and memcmp(at, b"extFields", 9) == 0:
        return scan_json_fields(cursor, header)
    if name.length == 4 and memcmp(at, b"flag", 4) == 0:
        return take_int32(cursor, &header.flag)
    if name.length == 8 and memcmp(at, b"language", 8) == 0:
        return take_language(cursor, &header.language)
    if name.length == 6 and memcmp(at, b"opaque", 6) == 0:
        return take_opaque(cursor, header)
    if name.length == 7 and memcmp(at, b"version", 7) == 0:
        return take_int32(cursor, &header.version)
    if name.length == 6 and memcmp(at, b"remark", 6) == 0:
        skip_blanks(cursor)
        if cursor.at < cursor.end and cursor.at[0] == c'"':
            return scan_string(cursor, &header.remark)
    return skip_value(cursor)


cdef int scan_json(const uint8_t *at, Py_ssize_t length, Header *header) noexcept nogil:
    cdef Cursor cursor
    cdef Span name
    cdef int status
    cursor.at = at
    cursor.end = at + length
    if not accept(&cursor, c'{'):
        return HEADER_BAD_JSON
    if not accept(&cursor, c'}'):
        while True:
            status = scan_string(&cursor, &name)
            if status < 0:
                return status
            if not accept(&cursor, c':'):
                return HEADER_BAD_JSON
            status = scan_json_member(&cursor, &name, header)
            if status < 0:
                return status
            if accept(&cursor, c','):
                continue
            if accept(&cursor, c'}'):
                break
            return HEADER_BAD_JSON
    skip_blanks(&cursor)
    return HEADER_OK if cursor.at == cursor.end else HEADER_BAD_JSON


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
