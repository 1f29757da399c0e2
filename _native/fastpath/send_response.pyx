"""SendResponse: the response to a stored message (see send_response.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t

from firearrow._native.base.endian cimport put_i32
from firearrow._native.wire.codes cimport FLAG_RESPONSE, PYTHON, SERIALIZER_ROCKETMQ, VERSION
from firearrow._native.base.endian cimport put_i32
from firearrow._native.wire.text_writer cimport decimal, hexadecimal, literal, quoted

cdef enum:
    JSON_BYTES = 256                      # more than the literals and numbers of one response


cdef int put_bytes(Writer out, bytes text) except -1:
    return out.put(PyBytes_AS_STRING(text), len(text))


cdef int put_pair(Writer out, bytes name, bytes value) except -1:
    out.put_i16(<short> len(name))
    put_bytes(out, name)
    out.put_i32(<int32_t> len(value))
    return put_bytes(out, value)


cdef class SendResponse:
    def __cinit__(self, dict marks not None, bytes host not None):
        cdef Writer json = Writer()
        cdef Writer binary = Writer()
        cdef bytes name, value
        put_bytes(json, b'{"code":0,"extFields":{')
        for key, text in marks.items():
            name, value = key.encode("utf-8", "replace"), text.encode("utf-8", "replace")
            json.put_json_string(<const uint8_t *> PyBytes_AS_STRING(name), len(name))
            put_bytes(json, b":")
            json.put_json_string(<const uint8_t *> PyBytes_AS_STRING(value), len(value))
            put_bytes(json, b",")
            put_pair(binary, name, value)
        self.json_head, self.binary_head = json.take(), binary.take()
        self.host = host.hex().upper().encode()

    cdef int write(
        self, Writer out, int serializer, int32_t opaque, const Text *unique_key, int32_t queue_id,
        int64_t queue_offset, const int64_t *physical_offsets, int count,
    ) except -1:
        cdef Py_ssize_t start = out.size
        out.put_i32(0)
        out.put_i32(0)
        if serializer == SERIALIZER_ROCKETMQ:
            self.put_binary(out, opaque, unique_key, queue_id, queue_offset, physical_offsets, count)
        else:
            self.put_json(out, opaque, unique_key, queue_id, queue_offset, physical_offsets, count)
        put_i32(out.data + start, <int32_t> (out.size - start - 4))
        put_i32(out.data + start + 4, <int32_t> (out.size - start - 8) | (serializer << 24))
        return 0

    cdef int put_json(
        self, Writer out, int32_t opaque, const Text *unique_key, int32_t queue_id, int64_t queue_offset,
        const int64_t *physical_offsets, int count,
    ) except -1:
        cdef Py_ssize_t head = len(self.json_head)
        cdef uint8_t *to
        out.reserve(head + 6 * unique_key.length + count * self.id_bytes() + JSON_BYTES)
        to = literal(out.data + out.size, PyBytes_AS_STRING(self.json_head), head)
        if unique_key.length > 0:
            to = literal(to, '"transactionId":', 16)
            to = quoted(to, unique_key.at, unique_key.length)
            to = literal(to, ",", 1)
        to = decimal(literal(to, '"queueId":"', 11), queue_id)
        to = self.ids(literal(to, '","msgId":"', 11), physical_offsets, count)
        to = decimal(literal(to, '","queueOffset":"', 17), queue_offset)
        to = decimal(literal(to, '"},"flag":1,"language":"PYTHON","opaque":', 41), opaque)
        to = literal(to, ',"serializeTypeCurrentRPC":"JSON","version":513}', 48)
        out.size = to - out.data
        return 0

    cdef int put_binary(
        self, Writer out, int32_t opaque, const Text *unique_key, int32_t queue_id, int64_t queue_offset,
        const int64_t *physical_offsets, int count,
    ) except -1:
        cdef Py_ssize_t start
        out.put_i16(0)
        out.put_byte(PYTHON)
        out.put_i16(VERSION)
        out.put_i32(opaque)
        out.put_i32(FLAG_RESPONSE)
        out.put_i32(0)
        start = out.size
        out.put_i32(0)
        put_bytes(out, self.binary_head)
        if unique_key.length > 0:
            put_name(out, "transactionId", 13)
            out.put_i32(<int32_t> unique_key.length)
            out.put(unique_key.at, unique_key.length)
        put_name(out, "queueId", 7)
        put_number(out, queue_id)
        put_name(out, "msgId", 5)
        out.put_i32(count * self.id_bytes() - 1)
        out.reserve(count * self.id_bytes())
        out.size = self.ids(out.data + out.size, physical_offsets, count) - out.data
        put_name(out, "queueOffset", 11)
        put_number(out, queue_offset)
        put_i32(out.data + start, <int32_t> (out.size - start - 4))
        return 0

    cdef int32_t id_bytes(self) noexcept:
        """Size of an offset id and a comma."""
        return <int32_t> len(self.host) + 17

    cdef uint8_t *ids(self, uint8_t *to, const int64_t *physical_offsets, int count) noexcept:
        """Offset ids, joined by commas."""
        cdef int n
        for n in range(count):
            if n > 0:
                to = literal(to, ",", 1)
            to = literal(to, PyBytes_AS_STRING(self.host), len(self.host))
            to = hexadecimal(to, <uint64_t> physical_offsets[n])
        return to


cdef int put_name(Writer out, const char *name, short length) except -1:
    out.put_i16(length)
    return out.put(name, length)


cdef int put_number(Writer out, int64_t value) except -1:
    """A decimal preceded by its length."""
    cdef Py_ssize_t start = out.size
    out.put_i32(0)
    out.put_decimal(value)
    put_i32(out.data + start, <int32_t> (out.size - start - 4))
    return 0
