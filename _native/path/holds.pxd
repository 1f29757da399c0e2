# Requests that found nothing wait for news of their queue or for their deadline, then run once more.
#
# Three indexes of the same requests, each left at once when one goes: by queue (news), by tenth of a second
# (deadlines, so at most that late), by peer (closed connections). Each is a dict of lines, a line a chain
# through those that wait in it, in the order in which they came.
#
# Ownership: `waiting` owns who waits, the dicts own the lines; all links are borrowed.
# Thread: the loop's.

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
    cdef readonly Py_ssize_t weight       # about the bytes that it takes
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
    cdef public Py_ssize_t most           # requests at once
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
