# Sockets of our own beside the loop's: one epoll set, which the loop watches as one reader.
#
#   a pass   epoll_wait → of some ready sockets recv into the window, one behind the other → frames to their connections,
#            one by one: then both ways are walked again and again, and stay near the processor   (EVENTS_MAX, PASS_NS)
#            → what was planned behind the last socket: the turn's write, then one send for each connection; then what
#            that planned: one send to each consumer that it woke
#
# What a pass leaves comes first in the next one, then whom epoll names anew; the kernel puts who was named
# behind the others. So no flood keeps the other sockets or the loop's own callbacks waiting.
#
# A socket is named once for what has come (edge triggered: the kernel need not ask each one again whether it
# still has something), so one that may have more than was read, or less room than was left to write, is
# watched anew: it is named behind the others then.
#
# Ownership: the engine owns its sockets until their connection was told that it is lost, which is never in a
# pass: what epoll named stays valid to the pass's end. Bytes that the kernel does not take at once are copied
# to the socket's backlog; behind `high_water` the connection is told, and reads no more. Thread: the loop's.

from libc.stdint cimport uint8_t, uint32_t

from firearrow._native.wire.conn cimport Conn
from firearrow._native.wire.plug cimport Plug

cdef enum:
    EVENTS_MAX = 64

cdef struct Read:
    void *wire                            # a Wire
    Py_ssize_t start, count               # of its bytes in the window, behind what its connection had kept

cdef class Engine:
    cdef object loop
    cdef int epoll
    cdef set wired
    cdef list planned, spare              # by turns: neither is made anew, for which there could be no memory
    # [first, last) are wires that epoll named, with `events`, not served yet
    cdef list waiting
    cdef uint32_t events[EVENTS_MAX]
    cdef int first, last
    cdef readonly bint passing
    cdef bint timed                       # `now` is the time: from a pass's beginning to its end
    cdef double now
    cdef Read reads[EVENTS_MAX]           # what was read and not handed over yet
    cdef int read_count
    cdef Py_ssize_t read_bytes            # of the window

    cdef double moment(self) except -1
    cdef int watch(self, Wire wire, uint32_t interest, bint known) except -1
    cdef int go_on_later(self) except -1
    cdef int run_planned(self) except -1
    cdef int serve_ready(self, long long deadline) except -1
    cdef int serve_waiting(self, long long deadline) except -1
    cdef bint serve(self, Wire wire, uint32_t events, long long deadline) except -1
    cdef int read(self, Wire wire, bint is_ending) except -1
    cdef bint hand_over(self, long long deadline) except -1
    cdef int give_up(self, Wire wire, error) except -1
    cdef int tell(self, who, error) except -1

cdef class Wire(Plug):
    cdef Engine engine
    cdef object socket, remote, local
    cdef Conn conn
    cdef int fd
    cdef uint32_t interest
    cdef uint8_t *backlog
    cdef Py_ssize_t start, end, room      # of the backlog: [start, end) waits
    cdef Py_ssize_t high_water
    cdef bint closing, lost, writing_paused

    cdef ssize_t receive(self, Py_ssize_t start, Py_ssize_t *room) except -2
    cdef int look_for_the_end(self) except -1
    cdef int drain(self) except -1
    cdef int tell_room(self) except -1
    cdef int store(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef int want(self, uint32_t interest) except -1
    cdef int lose(self, reason) except -1
    cdef int shut(self) except -1
