"""The loops that fill columns: numbers, times, strings, hosts and properties (see column_fill.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset, strlen

from firearrow._native.base.endian cimport get_i32
from firearrow._native.base.memory cimport copy_far
from firearrow._native.base.text cimport put_decimal
from firearrow._native.columnar.property_pairs cimport Pair, index_of
from firearrow._native.store.files.layout cimport HOST_V4_BYTES
from firearrow._native.store.log.record cimport RecordView, Text


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


cdef int64_t MS_MIN = -62135596800000           # 0001-01-01
cdef int64_t MS_MAX = 253402300799999           # the end of 9999


cdef void write_i32(RecordView *views, Py_ssize_t count, Py_ssize_t at, int32_t *to) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        to[index] = (<int32_t *> (<char *> &views[index] + at))[0]


cdef void write_i64(RecordView *views, Py_ssize_t count, Py_ssize_t at, int64_t *to) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        to[index] = (<int64_t *> (<char *> &views[index] + at))[0]


cdef Py_ssize_t write_times(
    RecordView *views, Py_ssize_t count, Py_ssize_t at, int64_t *to, uint8_t *bits
) noexcept nogil:
    """Returns how many are valid."""
    cdef Py_ssize_t index, valid = 0
    cdef int64_t ms
    memset(bits, 0, (count + 7) // 8)
    for index in range(count):
        ms = (<int64_t *> (<char *> &views[index] + at))[0]
        to[index] = 0
        if MS_MIN <= ms <= MS_MAX:
            to[index] = ms * 1000
            bits[index >> 3] |= 1 << (index & 7)
            valid += 1
    return valid


cdef int64_t write_offsets(
    const char *first, Py_ssize_t stride, Py_ssize_t count, int32_t *to
) noexcept nogil:
    """Returns the bytes of all; if they exceed OFFSET_MAX, the offsets are invalid."""
    cdef Py_ssize_t index
    cdef int64_t total = 0
    for index in range(count):
        to[index] = <int32_t> total
        total += text_at(first, index * stride).length
    to[count] = <int32_t> total
    return total


cdef void write_texts(
    const char *first, Py_ssize_t stride, Py_ssize_t count, const int32_t *starts, char *to
) noexcept nogil:
    cdef Py_ssize_t index
    cdef Text *text
    for index in range(count):
        text = text_at(first, index * stride)
        copy(to + starts[index], text.at, text.length)


cdef inline void copy(char *to, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Most strings are short: two copies of a fixed size, which may overlap, are faster than a call."""
    if length > 32 or length < 4:
        copy_far(to, at, length)
    elif length >= 16:
        memcpy(to, at, 16)
        memcpy(to + length - 16, at + length - 16, 16)
    elif length >= 8:
        memcpy(to, at, 8)
        memcpy(to + length - 8, at + length - 8, 8)
    else:
        memcpy(to, at, 4)
        memcpy(to + length - 4, at + length - 4, 4)


cdef void write_hosts(
    RecordView *views, Py_ssize_t count, Py_ssize_t at, uint8_t *to, Text *found
) noexcept nogil:
    """Consecutive equal hosts are written once."""
    cdef Py_ssize_t index
    cdef Text *host
    cdef Text *before = NULL
    for index in range(count):
        host = text_at(<const char *> &views[index], at)
        if before is not NULL and same_host(host, before):
            found[index] = found[index - 1]
        else:
            found[index].at = to + index * HOST_TEXT_BYTES_MAX
            found[index].length = write_host(host, to + index * HOST_TEXT_BYTES_MAX)
        before = host


cdef inline bint same_host(const Text *one, const Text *other) noexcept nogil:
    if one.length == HOST_V4_BYTES:           # a comparison of a fixed size is compiled inline
        return other.length == HOST_V4_BYTES and memcmp(one.at, other.at, HOST_V4_BYTES) == 0
    return one.length == other.length and memcmp(one.at, other.at, one.length) == 0


cdef void repeat_text(const Text *text, Py_ssize_t count, int32_t *starts, char *to) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        starts[index] = <int32_t> (index * text.length)
        memcpy(to + index * text.length, text.at, text.length)
    starts[count] = <int32_t> (count * text.length)


cdef Py_ssize_t choose(
    Pair *pairs, const int32_t *ends, Py_ssize_t count, const Text *name, Text *found, uint8_t *bits
) noexcept nogil:
    """The value of that name in each record; if a record has none, an empty value with bit 0. Returns how
    many records have one."""
    cdef Py_ssize_t index, pair, likely = 0, valid = 0
    cdef Pair *own
    memset(bits, 0, (count + 7) // 8)
    for index in range(count):
        own = pairs + ends[index]
        pair = index_of(own, ends[index + 1] - ends[index], name, likely)
        if pair < 0:
            found[index].at = name.at
            found[index].length = 0
        else:
            found[index] = own[pair].value
            bits[index >> 3] |= 1 << (index & 7)
            likely = pair
            valid += 1
    return valid
