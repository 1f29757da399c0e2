"""Notes: entries of the journal (see notes.pxd). One is noted with each pull that commits."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from firearrow._native.store.bytes cimport put_i16, put_i32, put_i64
from firearrow._native.store.hash cimport whole_crc


def put_note(page not None, Py_ssize_t at, uint8_t kind, bytes name not None, int32_t number, int64_t value, int64_t end):
    cdef Py_buffer room                   # a typed view of it would take longer than all the rest
    cdef Py_ssize_t length = PyBytes_GET_SIZE(name)
    cdef Py_ssize_t size = NOTE_HEAD_BYTES + length
    cdef uint8_t *to
    PyObject_GetBuffer(page, &room, PyBUF_WRITABLE)
    try:
        if at < 0 or size > room.len - at or length > 0xFFFF:
            raise ValueError(f"an entry of {size} bytes does not fit at {at} of {room.len}")
        to = <uint8_t *> room.buf + at
        to[4] = kind
        put_i16(to + 5, <short> length)
        put_i32(to + 7, number)
        put_i64(to + 11, value)
        put_i64(to + 19, end)
        memcpy(to + NOTE_HEAD_BYTES, PyBytes_AS_STRING(name), length)
        put_i32(to, <int32_t> whole_crc(to + 4, size - 4))
    finally:
        PyBuffer_Release(&room)
    return at + size
