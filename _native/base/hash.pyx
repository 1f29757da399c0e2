"""CRC-32 as records have it, CRC-32C, Java's String.hashCode over UTF-8, and the index's key hash."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy

cdef extern from *:
    """
    #define FA_P4 923521U           /* 31 to the fourth */
    #define FA_P8 (FA_P4 * FA_P4)
    #define FA_NOT_ASCII 0x8080808080808080ULL
    """
    const unsigned int P4 "FA_P4", P8 "FA_P8"
    const uint64_t NOT_ASCII "FA_NOT_ASCII"

fa_crc_prepare()
fa_crc32c_prepare()
fa_crc32c_prepare_mib()
CRC_WAYS = fa_crc_best + 1  # type: int
"""Number of CRC implementations that this processor supports; 0 works everywhere, higher ones are faster."""
CRC32C_WAYS = fa_crc32c_best + 1  # type: int
"""The same for CRC-32C."""


cdef int32_t body_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    return <int32_t> (fa_crc32(at, length) & 0x7FFFFFFF)


cdef int32_t body_crc_by(int way, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    return <int32_t> (fa_crc32_by(way, at, length) & 0x7FFFFFFF)


cdef uint32_t whole_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    return fa_crc32(at, length)


cdef uint32_t crc32c_more(uint32_t crc, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    return fa_crc32c_by(fa_crc32c_best, crc, at, length)


cdef uint32_t crc32c_append_mib(uint32_t first, uint32_t second) noexcept nogil:
    """The CRC of two ranges one after the other; the second has 1 MiB."""
    return fa_crc32c_append_mib(first, second)


cdef inline unsigned int polynomial(uint64_t eight) noexcept nogil:
    """The hash of eight ASCII bytes, the first one lowest: pairs in 16-bit lanes, then fours in 32-bit lanes,
    without overflow."""
    eight = (eight & 0x00FF00FF00FF00FFULL) * 31 + (eight >> 8 & 0x00FF00FF00FF00FFULL)
    eight = (eight & 0x0000FFFF0000FFFFULL) * 961 + (eight >> 16 & 0x0000FFFF0000FFFFULL)
    return <unsigned int> eight * P4 + <unsigned int> (eight >> 32)


cdef int32_t java_hash_more(int32_t hash, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Continue a hash over the UTF-16 units of UTF-8 text. Invalid bytes count as the replacement
    character."""
    cdef const uint8_t *end = at + length
    cdef unsigned int value = <unsigned int> hash
    cdef unsigned int point
    cdef uint64_t eight
    cdef int more
    while at < end:
        while end - at >= 8:
            memcpy(&eight, at, 8)
            if eight & NOT_ASCII:
                break
            value = value * P8 + polynomial(eight)
            at += 8
        while end - at >= 4 and (at[0] | at[1] | at[2] | at[3]) < 0x80:
            value = value * P4 + (at[0] * 29791 + at[1] * 961 + at[2] * 31 + at[3])
            at += 4
        if at == end:
            break
        point = at[0]
        at += 1
        if point < 0x80:
            value = value * 31 + point
            continue
        more = 1 if 0xC2 <= point < 0xE0 else 2 if 0xE0 <= point < 0xF0 else 3 if 0xF0 <= point < 0xF5 else -1
        if more < 0 or end - at < more:
            value = value * 31 + 0xFFFD
            continue
        point &= 0x3F >> more
        while more > 0 and at[0] & 0xC0 == 0x80:
            point = point << 6 | (at[0] & 0x3F)
            at += 1
            more -= 1
        if more > 0:
            value = value * 31 + 0xFFFD
        elif point < 0x10000:
            value = value * 31 + point
        else:
            value = value * 31 + (0xD800 + (point - 0x10000 >> 10))
            value = value * 31 + (0xDC00 + (point - 0x10000 & 0x3FF))
    return <int32_t> value


cdef int32_t index_hash(int32_t java_hash) noexcept nogil:
    """The absolute value; 0 for the smallest int, which has none (as Apache)."""
    if java_hash == -2147483648:
        return 0
    return -java_hash if java_hash < 0 else java_hash


def crc32(data not None, way=None):
    # type: (Buffer, int | None) -> int
    """CRC-32 with the top bit cleared, as records have it. `way`: implementation, None: the fastest.

    ValueError: this processor does not support it."""
    cdef const uint8_t[::1] view = data
    cdef int by = fa_crc_best if way is None else way
    if not 0 <= by <= fa_crc_best:
        raise ValueError(f"way {by}: this processor has {CRC_WAYS}, from 0")
    return body_crc_by(by, &view[0], view.shape[0]) if view.shape[0] else 0


def crc32c(data not None, uint32_t crc=0, way=None):
    # type: (Buffer, int, int | None) -> int
    """CRC-32C, 32 bits without a sign; `crc`: that of the bytes before. `way`: as for `crc32`. ValueError."""
    cdef const uint8_t[::1] view = data
    cdef int by = fa_crc32c_best if way is None else way
    if not 0 <= by <= fa_crc32c_best:
        raise ValueError(f"way {by}: this processor has {CRC32C_WAYS}, from 0")
    return fa_crc32c_by(by, crc, &view[0], view.shape[0]) if view.shape[0] else crc


def java_hash(str text not None):
    # type: (...) -> int
    """Java's String.hashCode: signed, 32 bits."""
    cdef bytes raw = text.encode("utf-8", "replace")
    return java_hash_more(0, <const uint8_t *> PyBytes_AS_STRING(raw), len(raw))


def key_hash(str topic not None, str key not None):
    # type: (...) -> int
    """The hash under which the index has a message's key or unique id."""
    return index_hash(java_hash(f"{topic}#{key}"))
