# PullHoldService: long polling. Requests that found nothing wait for an arrival in their queue or for their
# deadline, then run again.
#
# Three indexes of the same requests: by queue (arrivals), by tenth of a second (deadlines, so at most that
# late), by peer (closed connections). Each is a dict of linked lists in order of arrival; a request leaves
# all three at once.
#
# Ownership: `waiting` owns the requests, the dicts own the lists; all links are borrowed. Units: milliseconds
# of the monotonic clock, bytes. Thread: the loop's.

from libc.stdint cimport int64_t

from firearrow._native.base.clock cimport Clock

cdef enum:
    BY_QUEUE, BY_TICK, BY_PEER, LISTS

cdef class HeldList:
    cdef object key
    cdef void *first
    cdef void *last

cdef class HeldRequest:
    cdef readonly tuple queue  # type: Queue  # topic, queue id
    cdef readonly object peer  # type: Peer
    cdef readonly int64_t deadline_ms
    cdef readonly Py_ssize_t weight       # estimated bytes that it takes
    cdef bint waits
    cdef void *held_list[LISTS]
    cdef void *previous_held[LISTS]
    cdef void *next_held[LISTS]

    cdef bint has_match(self) except -1
    cdef int run_again(self) except -1

cdef class HeldCallback(HeldRequest):
    cdef object matches, callback

cdef class PullHoldService:
    cdef object loop, timer
    cdef Clock clock
    cdef public Py_ssize_t count_max      # limit of waiting requests
    cdef public Py_ssize_t bytes_max      # and of the bytes that they take
    cdef dict queues, ticks, peers        # key → HeldList
    cdef set waiting
    cdef Py_ssize_t bytes
    cdef int64_t ticked

    cdef bint has_capacity(self, Py_ssize_t weight) except -1
    cdef int hold(self, HeldRequest held) except -1
    cdef int notify_arriving(self, tuple queue) except -1
    cdef int notify_peer(self, peer) except -1
    cdef int answer_held(self, HeldRequest held, bint on_arrival) except -1
    cdef int drop(self, HeldRequest held) except -1
    cdef int unlink_all(self, HeldRequest held) except -1
    cdef int start_timer(self) except -1
