"""KeyHashes: under which hashes the index finds a record (see keyhashes.pxd)."""

from cpython.mem cimport PyMem_Free
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.store.hash cimport index_hash, java_hash_more
from firearrow._native.store.vector cimport grown


cdef class KeyHashes:
    def __cinit__(self):
        self.topic_bytes = -1

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int32_t take(self, const Text *topic, const Properties *properties) except -1:
        """How many one record has; they stand at `count`. MemoryError."""
        cdef Py_ssize_t place = self.count
        cdef const uint8_t *at = properties.keys.at
        cdef const uint8_t *end = at + properties.keys.length
        cdef const uint8_t *stop
        self.begin(topic)
        if properties.unique_key.length:
            self.put(place, java_hash_more(self.of_keys, properties.unique_key.at, properties.unique_key.length))
            place += 1
        while properties.keys.length and at < end:
            stop = <const uint8_t *> memchr(at, 32, end - at)
            if stop is NULL:
                stop = end
            if stop > at:
                self.put(place, java_hash_more(self.of_keys, at, stop - at))
                place += 1
            at = stop + 1
        if properties.tags.length:
            self.put(place, java_hash_more(self.of_tags, properties.tags.at, properties.tags.length))
            place += 1
        return <int32_t> (place - self.count)

    cdef void begin(self, const Text *topic) noexcept:
        if topic.length != self.topic_bytes or memcmp(topic.at, self.topic, topic.length) != 0:
            self.topic_bytes = topic.length if topic.length <= TOPIC_KEPT else -1
            memcpy(self.topic, topic.at, min(topic.length, <Py_ssize_t> TOPIC_KEPT))
            self.of_keys = java_hash_more(java_hash_more(0, topic.at, topic.length), b"#", 1)
            self.of_tags = java_hash_more(self.of_keys, b"T#", 2)

    cdef int put(self, Py_ssize_t place, int32_t key_hash) except -1:
        self.at = <int32_t *> grown(self.at, &self.room, place, sizeof(int32_t))
        self.at[place] = index_hash(key_hash)
        return 0
