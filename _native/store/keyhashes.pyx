"""KeyHashes: under which hashes the index finds a record (see keyhashes.pxd)."""

from cpython.mem cimport PyMem_Free
from libc.string cimport memchr

from firearrow._native.base.hash cimport index_hash, java_hash_more
from firearrow._native.store.files.layout cimport KEY_SEPARATOR
from firearrow._native.base.vector cimport grown


cdef int32_t keys_of(const uint8_t *topic, Py_ssize_t length) noexcept nogil:
    """How the hashes of a topic's keys begin."""
    return java_hash_more(java_hash_more(0, topic, length), b"#", 1)


cdef class KeyHashes:
    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int32_t add_keys(self, int32_t topic_key_hash, const Properties *properties) except -1:
        """How many a record has whose topic's hashes begin so; they stand at `count`. MemoryError."""
        cdef Py_ssize_t place = self.count
        cdef const uint8_t *at = properties.keys.at
        cdef const uint8_t *end = at + properties.keys.length
        cdef const uint8_t *stop
        if properties.unique_key.length:
            self.put(place, java_hash_more(topic_key_hash, properties.unique_key.at, properties.unique_key.length))
            place += 1
        while properties.keys.length and at < end:
            stop = <const uint8_t *> memchr(at, KEY_SEPARATOR, end - at)
            if stop is NULL:
                stop = end
            if stop > at:
                self.put(place, java_hash_more(topic_key_hash, at, stop - at))
                place += 1
            at = stop + 1
        if properties.tags.length:
            self.put(
                place,
                java_hash_more(java_hash_more(topic_key_hash, b"T#", 2), properties.tags.at, properties.tags.length),
            )
            place += 1
        return <int32_t> (place - self.count)

    cdef int put(self, Py_ssize_t place, int32_t key_hash) except -1:
        self.at = <int32_t *> grown(self.at, &self.capacity, place, sizeof(int32_t))
        self.at[place] = index_hash(key_hash)
        return 0
