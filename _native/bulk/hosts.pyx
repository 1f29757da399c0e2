"""Hosts of records as text (see hosts.pxd)."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport strlen

from firearrow._native.store.bytes cimport get_i32
from firearrow._native.store.layout cimport HOST_V4_BYTES

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
            at = write_number(at, host.at[index])
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
    if port < 0:
        to[0] = c"-"
        return write_number(to + 1, <uint32_t> 0 - <uint32_t> port)
    return write_number(to, <uint32_t> port)


cdef uint8_t *write_number(uint8_t *to, uint32_t number) noexcept nogil:
    cdef uint8_t digits[10]
    cdef Py_ssize_t count = 0
    while True:
        digits[count] = <uint8_t> (48 + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    return to
