# Big-endian numbers at a pointer, as on the wire and in files. Nothing is checked: callers check the bounds.
# Inline: each module that cimports them compiles its own copies. Any thread.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "base/platform.h":
    uint16_t fa_swap16(uint16_t) noexcept nogil
    uint32_t fa_swap32(uint32_t) noexcept nogil
    uint64_t fa_swap64(uint64_t) noexcept nogil


cdef inline int16_t get_i16(const uint8_t *at) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, at, 2)
    return <int16_t> fa_swap16(raw)


cdef inline int32_t get_i32(const uint8_t *at) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, at, 4)
    return <int32_t> fa_swap32(raw)


cdef inline int64_t get_i64(const uint8_t *at) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, at, 8)
    return <int64_t> fa_swap64(raw)


cdef inline void put_i16(uint8_t *at, int16_t value) noexcept nogil:
    cdef uint16_t raw = fa_swap16(<uint16_t> value)
    memcpy(at, &raw, 2)


cdef inline void put_i32(uint8_t *at, int32_t value) noexcept nogil:
    cdef uint32_t raw = fa_swap32(<uint32_t> value)
    memcpy(at, &raw, 4)


cdef inline void put_i64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t raw = fa_swap64(<uint64_t> value)
    memcpy(at, &raw, 8)
