"""StringSet: a set of strings that native code can query (see string_set.pxd)."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    COUNT_MAX = 1 << 26


cdef inline uint64_t hash_of(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Eight bytes at a time, multiplied and folded; not kept anywhere, so its order of bytes is the
    machine's."""
    cdef uint64_t factor = 0x9E3779B97F4A7C15
    cdef uint64_t hash = length * factor, word
    while length > 0:
        word = 0
        memcpy(&word, at, min(length, 8))
        hash = (hash ^ word) * factor
        hash ^= hash >> 29
        at += 8
        length -= 8
    return hash ^ (hash >> 32)


@cython.final
cdef class StringSet:
    """A set of at most 64 Mi strings, compared as UTF-8."""

    def __cinit__(self, texts):
        # type: (Collection[str]) -> None
        cdef list encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        cdef uint64_t capacity = 16, n
        cdef int64_t at = 0
        if len(encoded) > COUNT_MAX:
            raise ValueError(f"{len(encoded)} texts in a set, at most {COUNT_MAX}")
        while capacity < 2 * <uint64_t> len(encoded):
            capacity *= 2
        self.slots = <Slot *> malloc(capacity * sizeof(Slot))
        if self.slots is NULL:
            raise MemoryError()
        self.mask = capacity - 1
        for n in range(capacity):
            self.slots[n].length = -1
        self.texts = b"".join(encoded)
        self.data = <const uint8_t *> <const char *> self.texts
        for text in encoded:
            self.put(self.data + at, len(text), at)
            at += len(text)

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        # type: (...) -> int
        return self.count

    def __contains__(self, str text not None):
        # type: (...) -> bool
        cdef bytes encoded = text.encode("utf-8", "surrogateescape")
        return self.contains(<const uint8_t *> <const char *> encoded, len(encoded))

    cdef void put(self, const uint8_t *at, Py_ssize_t length, int64_t position) noexcept nogil:
        cdef uint64_t hash = hash_of(at, length), n
        if self.contains(at, length):
            return
        n = hash & self.mask
        while self.slots[n].length >= 0:
            n = (n + 1) & self.mask
        self.slots[n].hash = hash
        self.slots[n].at = position
        self.slots[n].length = length
        self.count += 1

    cdef bint contains(self, const uint8_t *at, Py_ssize_t length) noexcept nogil:
        cdef uint64_t hash = hash_of(at, length)
        cdef uint64_t n = hash & self.mask
        cdef const Slot *slot = &self.slots[n]
        while slot.length >= 0:
            if slot.hash == hash and slot.length == length and memcmp(self.data + slot.at, at, length) == 0:
                return True
            n = (n + 1) & self.mask
            slot = &self.slots[n]
        return False
