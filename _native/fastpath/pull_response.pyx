"""The header of the response to a pull that found messages (see pull_response.pxd)."""

from firearrow._native.base.endian cimport put_i32
from firearrow._native.wire.codes cimport FLAG_RESPONSE, PYTHON, SERIALIZER_ROCKETMQ, VERSION

cdef enum:
    VALUES = 6

cdef const char **NAMES = [
    "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag",
]
cdef int *LENGTHS = [20, 15, 9, 9, 12, 12]


cdef int write_pull_response(
    Writer out, int serializer, int32_t opaque, const int64_t *values, int64_t body_bytes
) except -1:
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t header_bytes
    out.reserve(512 + body_bytes)
    out.put_i32(0)
    out.put_i32(0)
    if serializer == SERIALIZER_ROCKETMQ:
        put_binary(out, opaque, values)
    else:
        put_json(out, opaque, values)
    header_bytes = out.size - start - 8
    put_i32(out.data + start, <int32_t> (header_bytes + 4 + body_bytes))
    put_i32(out.data + start + 4, <int32_t> header_bytes | (serializer << 24))
    return out.reserve(body_bytes)


cdef int put_json(Writer out, int32_t opaque, const int64_t *values) except -1:
    cdef int n
    out.put('{"code":0,"extFields":{', 23)
    for n in range(VALUES):
        out.put('"' if n == 0 else ',"', 1 if n == 0 else 2)
        out.put(NAMES[n], LENGTHS[n])
        out.put('":"', 3)
        out.put_decimal(values[n])
        out.put_byte(c'"')
    out.put('},"flag":1,"language":"PYTHON","opaque":', 40)
    out.put_decimal(opaque)
    return out.put(',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":513}', 65)


cdef int put_binary(Writer out, int32_t opaque, const int64_t *values) except -1:
    cdef Py_ssize_t start, value
    cdef int n
    out.put_i16(0)
    out.put_byte(PYTHON)
    out.put_i16(VERSION)
    out.put_i32(opaque)
    out.put_i32(FLAG_RESPONSE)
    out.put_i32(5)
    out.put("FOUND", 5)
    start = out.size
    out.put_i32(0)
    for n in range(VALUES):
        out.put_i16(<short> LENGTHS[n])
        out.put(NAMES[n], LENGTHS[n])
        value = out.size
        out.put_i32(0)
        out.put_decimal(values[n])
        put_i32(out.data + value, <int32_t> (out.size - value - 4))
    put_i32(out.data + start, <int32_t> (out.size - start - 4))
    return 0
