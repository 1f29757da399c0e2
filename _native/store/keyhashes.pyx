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

    cdef int take(self, const Text *topic, const Properties *properties) except -1:
        """Those of one record. MemoryError: some may have been added."""
        cdef int32_t of_topic = self.of_topic(topic)
        cdef const uint8_t *at = properties.keys.at
        cdef const uint8_t *end = at + properties.keys.length
        cdef const uint8_t *stop
        if properties.unique_key.length:
            self.add(java_hash_more(of_topic, properties.unique_key.at, properties.unique_key.length))
        while properties.keys.length and at < end:
            stop = <const uint8_t *> memchr(at, 32, end - at)
            if stop is NULL:
                stop = end
            if stop > at:
                self.add(java_hash_more(of_topic, at, stop - at))
            at = stop + 1
        if properties.tags.length:
            of_topic = java_hash_more(of_topic, b"T#", 2)
            self.add(java_hash_more(of_topic, properties.tags.at, properties.tags.length))
        return 0

    cdef int32_t of_topic(self, const Text *topic) noexcept:
        if topic.length != self.topic_bytes or memcmp(topic.at, self.topic, topic.length) != 0:
            if topic.length > TOPIC_KEPT:
                return java_hash_more(java_hash_more(0, topic.at, topic.length), b"#", 1)
            memcpy(self.topic, topic.at, topic.length)
            self.topic_bytes = topic.length
            self.topic_hash = java_hash_more(java_hash_more(0, topic.at, topic.length), b"#", 1)
        return self.topic_hash

    cdef int add(self, int32_t key_hash) except -1:
        self.at = <int32_t *> grown(self.at, &self.room, self.count, sizeof(int32_t))
        self.at[self.count] = index_hash(key_hash)
        self.count += 1
        return 0
