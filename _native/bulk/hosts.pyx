"""Hosts of records as text (see hosts.pxd)."""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport strlen

from firearrow._native.base.endian cimport get_i32
from firearrow._native.base.text cimport put_decimal
from firearrow._native.store.files.layout cimport HOST_V4_BYTES

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET6
    const char *inet_ntop(int family, const void *address, char *to, unsigned size)

cdef enum:
    V6_BYTES = 16
    V6_TEXT_BYTES = 46


cdef Py_ssize_t write_host(const Text *host, uint8_t *to) noexcept nogil:
    cdef uint8_t *at = to
    cdef Py_ssize_t index
    if host.length == HOST_V4_BYTES:
        for index in range(4):
            at = put_decimal(at, host.at[index])
            at[0] = c":" if index == 3 else c"."
            at += 1
        return write_port(at, get_i32(host.at + 4)) - to
    at[0] = c"["
    inet_ntop(AF_INET6, host.at, <char *> at + 1, V6_TEXT_BYTES)
    at += 1 + strlen(<char *> at + 1)
    at[0] = c"]"
    at[1] = c":"
    return write_port(at + 2, get_i32(host.at + V6_BYTES)) - to


cdef uint8_t *write_port(uint8_t *to, int32_t port) noexcept nogil:
    return put_decimal(to, port)
