# Hashes of the store and of replication: CRC-32 of bodies, CRC-32C of the log, Java's String.hashCode, the
# key hash of the index. Pure; any thread. Each module that includes crc32.h or crc32c.h gets its own tables:
# only hash.pyx does; others cimport `body_crc` (top bit cleared, as records have it), `whole_crc` or
# `crc32c_more`.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "base/crc32.h" nogil:
    int fa_crc_best
    unsigned int fa_crc32(const uint8_t *at, size_t length) noexcept
    unsigned int fa_crc32_by(int way, const uint8_t *at, size_t length) noexcept
    void fa_crc_prepare() noexcept

cdef extern from "base/crc32c.h" nogil:
    int fa_crc32c_best
    unsigned int fa_crc32c_by(int way, unsigned int crc, const uint8_t *at, size_t length) noexcept
    unsigned int fa_crc32c_append_mib(unsigned int first, unsigned int second) noexcept
    void fa_crc32c_prepare() noexcept
    void fa_crc32c_prepare_mib() noexcept

cdef int32_t body_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t body_crc_by(int way, const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef uint32_t whole_crc(const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t java_hash_more(int32_t hash, const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef int32_t index_hash(int32_t java_hash) noexcept nogil
cdef uint32_t crc32c_more(uint32_t crc, const uint8_t *at, Py_ssize_t length) noexcept nogil
cdef uint32_t crc32c_append_mib(uint32_t first, uint32_t second) noexcept nogil
