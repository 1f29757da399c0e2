# Holds: long polling. Requests that found nothing wait for an arrival in their queue or for their deadline,
# then run again.
#
# Three indexes of the same requests: by queue (arrivals), by tenth of a second (deadlines, so at most that
# late), by peer (closed connections). Each is a dict of linked lists in order of arrival; a request leaves
# all three at once.
#
# Ownership: `waiting` owns the requests, the dicts own the lists; all links are borrowed. Units: milliseconds
# of the monotonic clock, bytes. Thread: the loop's.

from libc.stdint cimport int64_t

from firearrow._native.wire.clocks cimport Clock

cdef enum:
    OF_QUEUE, OF_TICK, OF_PEER, LINES

cdef class Line:
    cdef object key
    cdef void *first
    cdef void *last

cdef class Held:
    cdef readonly tuple queue             # topic, queue id
    cdef readonly object peer
    cdef readonly int64_t deadline_ms
    cdef readonly Py_ssize_t weight       # estimated bytes that it takes
    cdef bint waits
    cdef void *line[LINES]
    cdef void *before[LINES]
    cdef void *behind[LINES]

    cdef bint wants(self) except -1
    cdef int again(self) except -1

cdef class HeldCall(Held):
    cdef object asked, called

cdef class Holds:
    cdef object loop, timer
    cdef Clock clock
    cdef public Py_ssize_t most           # limit of waiting requests
    cdef dict queues, ticks, peers        # key → Line
    cdef set waiting
    cdef Py_ssize_t bytes
    cdef int64_t ticked

    cdef bint has_room(self, Py_ssize_t weight) except -1
    cdef int enter(self, Held held) except -1
    cdef int hear(self, tuple queue) except -1
    cdef int attend(self, Held held, bint is_news) except -1
    cdef int drop(self, Held held) except -1
    cdef int part_with(self, Held held) except -1
    cdef int watch(self) except -1
