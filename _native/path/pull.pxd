# Puller: a PULL_MESSAGE that finds messages at once, from its header to its answer. What it may get is asked of the broker
# once for each group, topic and subscription, and kept as a Plan until anything changes, a second at most. Nothing there,
# an offset that is not in the queue, a reset that waits, a proxy, an SQL filter, …: not mine.
#
# Records are copied once, from the mapped log into the connection's `out`. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.path.fields cimport PullFields
from firearrow._native.path.lane cimport Front
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.fetch cimport Picked, Scan
from firearrow._native.store.store cimport MessageStore
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef enum:
    CODES_MAX = 16
    KEY_MAX = 1024

cdef class Plan:
    cdef str group, topic
    cdef bytes name                       # the topic's bytes
    cdef bint mine
    cdef double made                      # the loop's time
    cdef int32_t queues, topic_sys_flag, group_sys_flag
    cdef int32_t codes[CODES_MAX]
    cdef Py_ssize_t codes_count
    cdef dict found                       # queue id → ConsumeQueue
    cdef int64_t forgotten                # the store's count when they were found

    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id)

cdef class Puller:
    cdef MessageStore store
    cdef object resolve, offsets, stats
    cdef dict resets
    cdef dict plans                       # key → Plan
    cdef Picked *picked
    cdef uint8_t key[KEY_MAX]

    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1
    cdef Plan plan_of(self, const PullFields *fields, double now)
    cdef Plan made(self, const PullFields *fields, double now)
    cdef int find(self, Plan plan, ConsumeQueue queue, const PullFields *fields, Scan *scan) except -1
    cdef bint note(self, Plan plan, const PullFields *fields, const Scan *scan) except -1
    cdef int answer(self, Front front, const Frame *frame, const Header *header, Plan plan, ConsumeQueue queue, const Scan *scan) except -1
