"""Gate: topics whose messages may take the short way (see gate.pxd). Knows names and queues, no configs."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcmp, memcpy

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
    SLOTS_MIN = 64
    QUEUES_MAX = 65536            # the store takes no greater number than the one below


cdef class Place:
    def __cinit__(self, ConsumeQueue queue):
        self.queue = queue
        self.name = (queue.topic, queue.queue_id)
        self.run = -1


cdef class Topic:
    def __cinit__(self, str text not None, int32_t queues, bint sendable, bint multi_tags):
        self.name = text.encode()
        self.text = text
        self.queues = min(queues, <int32_t> QUEUES_MAX)
        self.sendable = sendable
        self.multi_tags = multi_tags
        self.places = []
        self.forgotten = -1

    cdef Place place(self, MessageStore store, int32_t queue_id):
        """The queue, made if need be; the caller has checked its number."""
        if self.forgotten == store.dispatch.forgotten and self.last is not None and self.last.queue.queue_id == queue_id:
            return self.last
        self.last = self.place_found(store, queue_id)
        return self.last

    cdef Place place_found(self, MessageStore store, int32_t queue_id):
        if self.forgotten != store.dispatch.forgotten:
            self.places = []
            self.forgotten = store.dispatch.forgotten
        if queue_id >= len(self.places):
            self.places.extend([None] * (queue_id + 1 - len(self.places)))
        found = self.places[queue_id]
        if found is None:
            found = Place(store.dispatch.queue_of(self.name, queue_id, True))
            self.places[queue_id] = found
        return <Place> found

    cdef int tell(self, stats) except -1:
        """What was put since the last time."""
        if self.messages_put is None:
            self.messages_put, self.bytes_put = stats.counts(self.text)
        self.messages_put.value += self.messages
        self.bytes_put.value += self.bytes
        self.messages_put.times += self.requests
        self.bytes_put.times += self.requests
        self.messages = self.bytes = self.requests = 0
        return 0


cdef inline bint is_called(const Slot *slot, const uint8_t *name, Py_ssize_t length) noexcept:
    if slot.name_bytes:
        return slot.name_bytes == length and memcmp(slot.name, name, length) == 0
    own = (<Topic> slot.topic).name
    return PyBytes_GET_SIZE(own) == length and memcmp(PyBytes_AS_STRING(own), name, length) == 0


cdef class Gate:
    def __cinit__(self):
        self.topics = {}
        self.slots_count = SLOTS_MIN
        self.slots = <Slot *> PyMem_Calloc(SLOTS_MIN, sizeof(Slot))
        if self.slots is NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.slots)

    def put(self, str topic not None, *, int32_t queues, bint sendable, bint multi_tags=False):
        """Let the topic in, or change what is known of it."""
        made = Topic(topic, queues, sendable, multi_tags)
        before = self.topics.get(made.name)  # lives until no slot has it any more
        self.topics[made.name] = made
        self.enter(made)
        del before

    def drop(self, str topic not None):
        """Its messages take the complete way."""
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
        return len(self.topics)

    def __contains__(self, str topic not None):
        cdef bytes name = topic.encode()
        return self.find(<const uint8_t *> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)) is not None

    cdef Topic find(self, const uint8_t *name, Py_ssize_t length):
        """The topic, or None."""
        cdef Slot *slot = self.slot_of(name, length, fa_hash_bytes(name, length))
        if slot.topic is NULL:
            return None
        return <Topic> slot.topic

    cdef int enter(self, Topic topic) except -1:
        cdef Slot *slot
        cdef Py_hash_t hash = fa_hash_bytes(PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name))
        self.make_room()
        slot = self.slot_of(<const uint8_t *> PyBytes_AS_STRING(topic.name), PyBytes_GET_SIZE(topic.name), hash)
        if not slot.used:
            self.slots_used += 1
        slot.used = True
        slot.hash = hash
        slot.topic = <void *> topic
        slot.name_bytes = 0
        if 0 < PyBytes_GET_SIZE(topic.name) <= NAME_HERE_BYTES:
            slot.name_bytes = <uint8_t> PyBytes_GET_SIZE(topic.name)
            memcpy(slot.name, PyBytes_AS_STRING(topic.name), slot.name_bytes)
        return 0

    cdef Slot *slot_of(self, const uint8_t *name, Py_ssize_t length, Py_hash_t hash) noexcept:
        """Where the topic stands, or the free slot in which its search ends."""
        cdef Py_ssize_t at = hash & (self.slots_count - 1)
        cdef Slot *slot
        while True:
            slot = &self.slots[at]
            if not slot.used or (slot.topic is not NULL and slot.hash == hash and is_called(slot, name, length)):
                return slot
            at = (at + 1) & (self.slots_count - 1)

    cdef int make_room(self) except -1:
        """At least half of the slots stay free; those of topics that went are given back."""
        cdef Py_ssize_t count = SLOTS_MIN
        if 2 * (self.slots_used + 1) <= self.slots_count:
            return 0
        while count < 3 * (len(self.topics) + 1):
            count *= 2
        fresh = <Slot *> PyMem_Calloc(count, sizeof(Slot))
        if fresh is NULL:
            raise MemoryError()
        PyMem_Free(self.slots)
        self.slots, self.slots_count, self.slots_used = fresh, count, 0
        for topic in self.topics.values():
            self.enter(<Topic> topic)
        return 0
