# PlainTopics: the topics whose plain messages the fast path may store and pull, looked up by the bytes of
# their names. The broker fills it and keeps it up to date; requests for other topics take the complete path.
#
# Ownership: `topics` owns the Topics, the slots of the hash table borrow them; a Topic owns its queues. When
# the store's count of deleted topics changes, all queues are looked up again.
#
# Count: a counter incremented where the event happens; shared with its owner, Stats. Thread: the loop's.

from libc.stdint cimport int64_t
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from firearrow._native.fastpath.request_times cimport PutCounts
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.message_store cimport MessageStore
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.json cimport Span


cdef class Count:
    cdef public int64_t value, times


cdef enum:
    INLINE_NAME_BYTES = 46

# one cache line: with many topics each access to an object is a cache miss
cdef struct Slot:
    Py_hash_t hash
    void *topic                           # a Topic; NULL with `used`: it was dropped
    uint8_t used
    uint8_t name_bytes                    # 0: the name is too long for the slot
    uint8_t name[INLINE_NAME_BYTES]


@cython.final
cdef class Topic:
    # queue ids below it are valid for a sender: the greater count of read and write queues
    cdef readonly int32_t queues
    cdef readonly bint sendable, multi_tags
    cdef ConsumeQueue last                # the last one used of `queue_list`; mostly the next one too
    cdef int64_t forgotten                # the store's count of deleted topics when `queue_list` was filled
    cdef int64_t messages, bytes, requests    # counts since the last report to the statistics
    cdef list queue_list                  # queue id → ConsumeQueue or None, as short as possible
    cdef readonly bytes name
    cdef readonly str text
    cdef Count messages_put, bytes_put    # in the statistics; None: not looked up yet
    cdef PutCounts plain_counts, ordered_counts
    cdef int64_t ordered, ordered_bytes   # the part of `messages` and `bytes` that has a sharding key

    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id)
    cdef ConsumeQueue find_queue(self, MessageStore store, int32_t queue_id)
    cdef int find_counts(self, stats) except -1
    cdef int record_stats(self, stats) except -1
    cdef void prefetch_last(self) noexcept


@cython.final
cdef class PlainTopics:
    cdef readonly dict topics             # name → Topic
    cdef Slot *slots
    cdef Slot *newest                     # the last one found; NULL: none since the slots were allocated
    cdef Py_ssize_t slots_count, slots_used

    cdef void *find(self, const uint8_t *name, Py_ssize_t length) noexcept
    cdef void prefetch_next(self, const Frame *frame, const Span *name) noexcept
    cdef int insert(self, Topic topic) except -1
    cdef Slot *slot_of(self, const uint8_t *name, Py_ssize_t length, Py_hash_t hash) noexcept
    cdef int grow_slots(self) except -1
