"""PlainTopics: the topics of the fast path (see topic_cache.pxd). Knows names and queues, no configs.

Count: a sum and the number of additions.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset
from firearrow._native.base.memory cimport prefetch_write, prefetch_write_range
from firearrow._native.base.memory cimport fa_same


cdef class Count:
    """`value`: the sum; `times`: the number of additions."""
    pass


cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "<sys/mman.h>" nogil:
    enum: MADV_HUGEPAGE
    int madvise(void *at, size_t length, int advice)

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define fa_hash_bytes(at, length) Py_HashBuffer((at), (length))
    #else
    #define fa_hash_bytes(at, length) _Py_HashBytes((at), (length))
    #endif
    """
    Py_hash_t fa_hash_bytes(const void *at, Py_ssize_t length) noexcept nogil

cdef enum:
    LINE_BYTES = 64
    PREFETCH_BYTES = 128          # of a topic or a queue: the fields that a send reads
    HUGE_BYTES = 2097152
    SLOTS_MIN = 64
    FAR_SLOTS = 512               # a table of this size does not stay in the cache
    QUEUES_MAX = 65536            # the store's queue ids are below it


cdef class Topic:
    def __cinit__(self, str text not None, int32_t queues, bint sendable, bint multi_tags):
        self.name = text.encode()
        self.text = text
        self.queues = min(queues, <int32_t> QUEUES_MAX)
        self.sendable = sendable
        self.multi_tags = multi_tags
        self.queue_list = []
        self.forgotten = -1

    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id):
        """The queue, created if needed; the caller has checked its id."""
        if (
            self.forgotten == store.dispatch.forgotten
            and self.last is not None
            and self.last.queue_id == queue_id
        ):
            return self.last
        self.last = self.find_queue(store, queue_id)
        return self.last

    cdef ConsumeQueue find_queue(self, MessageStore store, int32_t queue_id):
        if self.forgotten != store.dispatch.forgotten:
            self.queue_list = []
            self.forgotten = store.dispatch.forgotten
        if queue_id >= len(self.queue_list):  # of exact size: there are many of these lists
            self.queue_list = self.queue_list + [None] * (queue_id + 1 - len(self.queue_list))
        found = self.queue_list[queue_id]
        if found is None:
            found = self.queue_list[queue_id] = store.dispatch.queue_of(self.name, queue_id, True)
        return <ConsumeQueue> found

    cdef void prefetch_last(self) noexcept:
        """Prefetch the queue that is probably the next one."""
        prefetch_write_range(<void *> self.last, PREFETCH_BYTES)

    cdef int find_counts(self, stats) except -1:
        if self.messages_put is None:
            self.messages_put, self.bytes_put = stats.counts(self.text)
            self.plain_counts = stats.put_counts(self.text, "normal")
            self.ordered_counts = stats.put_counts(self.text, "fifo")
        return 0

    cdef int record_stats(self, stats) except -1:
        """Report the counts since the last call."""
        self.find_counts(stats)
        self.plain_counts.messages += self.messages - self.ordered
        self.plain_counts.bytes += self.bytes - self.ordered_bytes
        self.ordered = self.ordered_bytes = 0
        self.messages_put.value += self.messages
        self.bytes_put.value += self.bytes
        self.messages_put.times += self.requests
        self.bytes_put.times += self.requests
        self.messages = self.bytes = self.requests = 0
        return 0


cdef Slot *empty_slots(Py_ssize_t count) except NULL:
    """One cache line each; large tables in huge pages. MemoryError."""
    cdef Py_ssize_t size = count * sizeof(Slot)
    found = <Slot *> aligned_alloc(HUGE_BYTES if size >= HUGE_BYTES else LINE_BYTES, size)
    if found is NULL:
        raise MemoryError()
    if size >= HUGE_BYTES:
        madvise(found, size, MADV_HUGEPAGE)
    memset(found, 0, size)
    return found


cdef inline bint has_name(const Slot *slot, const uint8_t *name, Py_ssize_t length) noexcept:
    if slot.name_bytes:
        return slot.name_bytes == length and fa_same(slot.name, name, length)
    own = (<Topic> slot.topic).name
    return PyBytes_GET_SIZE(own) == length and memcmp(PyBytes_AS_STRING(own), name, length) == 0


cdef class PlainTopics:
    """The topics of the fast path; requests for others take the complete path."""

    def __cinit__(self):
        self.topics = {}
        self.slots_count = SLOTS_MIN
        self.slots = empty_slots(SLOTS_MIN)

    def __dealloc__(self):
        free(self.slots)

    def put(self, str topic not None, *, int32_t queues, bint sendable, bint multi_tags=False):
        # type: (...) -> None
        """Add the topic, or change its settings. Queue ids below `queues` are valid for a sender."""
        made = Topic(topic, queues, sendable, multi_tags)
        before = self.topics.get(made.name)  # keeps it alive until its slot is replaced
        self.topics[made.name] = made
        self.insert(made)
        del before

    def drop(self, str topic not None):
        # type: (...) -> None
        """Its requests take the complete path."""
        cdef Slot *slot
        found = self.topics.pop(topic.encode(), None)
        if found is None:
            return
        name = (<Topic> found).name
        slot = self.slot_of(
            <const uint8_t *> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name),
            fa_hash_bytes(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)),
        )
        slot.topic = NULL

    def __len__(self):
        # type: (...) -> int
        return len(self.topics)

    def __contains__(self, str topic not None):
        # type: (...) -> bool
        cdef bytes name = topic.encode()
        return self.find(<const uint8_t *> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)) is not NULL

    cdef void *find(self, const uint8_t *name, Py_ssize_t length) noexcept:
        """The topic, borrowed, or NULL. Its memory is being prefetched: do other work first."""
        cdef Slot *slot = self.newest
        if slot is NULL or slot.topic is NULL or not has_name(slot, name, length):
            slot = self.newest = self.slot_of(name, length, fa_hash_bytes(name, length))
        prefetch_write_range(slot.topic, PREFETCH_BYTES)
        return slot.topic

    cdef void prefetch_next(self, const Frame *frame, const Span *name) noexcept:
        """Prefetch the slot of the topic in the next frame: its name probably has the length of `name`, which
        is in this frame's header, and the same position."""
        cdef const uint8_t *following = name.at + frame.size
        if (
            self.slots_count >= FAR_SLOTS
            and frame.after >= following + name.length - (frame.body + frame.body_bytes)
        ):
            prefetch_write(&self.slots[fa_hash_bytes(following, name.length) & (self.slots_count - 1)])

    cdef int insert(self, Topic topic) except -1:
        cdef Slot *slot
        cdef Py_hash_t hash = fa_hash_bytes(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name))
        self.grow_slots()
        slot = self.slot_of(
            <const uint8_t *> PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name), hash
        )
        if not slot.used:
            self.slots_used += 1
        slot.used = True
        slot.hash = hash
        slot.topic = <void *> topic
        slot.name_bytes = 0
        if 0 < PyBytes_GET_SIZE(topic.name) <= INLINE_NAME_BYTES:
            slot.name_bytes = <uint8_t> PyBytes_GET_SIZE(topic.name)
            memcpy(slot.name, PyBytes_AS_STRING(topic.name), slot.name_bytes)
        return 0

    cdef Slot *slot_of(self, const uint8_t *name, Py_ssize_t length, Py_hash_t hash) noexcept:
        """The slot of the topic, or the free slot at the end of its probe sequence."""
        cdef Py_ssize_t at = hash & (self.slots_count - 1)
        cdef Slot *slot
        while True:
            slot = &self.slots[at]
            if (
                not slot.used
                or (slot.topic is not NULL and slot.hash == hash and has_name(slot, name, length))
            ):
                return slot
            at = (at + 1) & (self.slots_count - 1)

    cdef int grow_slots(self) except -1:
        """Keep at least half of the slots free; a new table leaves dropped topics out."""
        cdef Py_ssize_t count = SLOTS_MIN
        if 2 * (self.slots_used + 1) <= self.slots_count:
            return 0
        while count < 3 * (len(self.topics) + 1):
            count *= 2
        fresh = empty_slots(count)
        free(self.slots)
        self.newest = NULL
        self.slots, self.slots_count, self.slots_used = fresh, count, 0
        for topic in self.topics.values():
            self.insert(<Topic> topic)
        return 0
