# Hashes of the store: CRC-32 of bodies, Java's String.hashCode, the key hash of the index. Pure; any thread.
# Each module that includes crc32.h gets its own table: only hash.pyx does; others cimport `body_crc` (top bit
# cleared, as records have it) or `whole_crc`.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "base/crc32.h" nogil:
    int fa_crc_best
    unsigned int fa_crc32(const uint8_t *at, size_t length) noexcept
    unsigned int fa_crc32_by(int way, const uint8_t *at, size_t length) noexcept
    void fa_crc_prepare() noexcept

cdef int32_t body_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t body_crc_by(int way, const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef uint32_t whole_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t java_hash_more(int32_t hash, const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t index_hash(int32_t java_hash) noexcept nogil
