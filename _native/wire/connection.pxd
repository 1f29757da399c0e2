# Connection: one peer, on a transport of the loop or on a poller's socket; both feed the same frame loop.
#
# Ownership: all connections of a thread receive into one shared window. The rest of a partial frame is copied
# to the connection's own `partial`. Its capacity grows with the bytes received, never with what a length word
# claims; a larger buffer is used if the pool has one. Commands own their data, so nothing points into window
# or `partial` when a call returns.
#
# Order: a read passes complete frames to `received`, at most FRAMES_PER_PASS of them before other connections
# are served. Replies collect in `answers` and leave as one write. While the peer does not read its replies
# (`write_paused`), its requests are not read either: memory is bounded by the transport's high-water mark and
# the replies of one pass. Partial frames and bytes that the kernel does not take count in the shared
# `budget`. A client `reads_always`: if both sides stopped reading, neither could send.
#
# Units: bytes; `last_seen` is the loop's time in seconds. Subclasses (server, client) override `received` and
# `lost`; native ones may override `handle_frame`.
#
# RawTransport: where a connection's bytes go if it has no transport of the loop, like a poller's socket.
#
# ByteProtocol: what a connection speaks instead of frames once its first bytes were HTTP/2's preface.
#
# FairQueue: the connections of a loop that have complete frames left over, first come first served. Each
# iteration of the loop gives them a slice of time and serves ready sockets in between, so that a thousand
# busy connections do not delay a quiet one by all their work. A connection that is closed by then does
# nothing. `has_time`: slow requests (those of the complete handlers) get a slice in each iteration, too, if
# no connection waits; otherwise their connections wait in the queue, with the requests after them.
#
# Thread: the loop's.

from libc.stdint cimport int64_t, uint8_t
from firearrow._native.wire.buffer_pool cimport MemoryBudget
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.buffer_pool cimport BufferPool

cdef enum:
    # what handle_frame returns
    MAY_BE_CLOSED = 0                     # callbacks ran that may have closed the connection
    STILL_OPEN = 1
    DEFERRED = 2                          # not handled; the connection waits in the fair queue


cdef class RawTransport:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef double now(self) except -1


cdef class ByteProtocol:
    cdef Py_ssize_t feed(self, const uint8_t *at, Py_ssize_t available) except -1
    cdef int writable(self) except -1
    cdef int drain(self) except -1
    cdef int end(self) except -1
    cdef int lost(self) except -1


cdef class FairQueue:
    cdef object loop
    cdef object connections               # deque of Connection
    cdef bint planned, running
    cdef int64_t spent_ns                 # for slow requests, in this iteration of the loop

    cdef Py_ssize_t count(self)
    cdef bint has_time(self) except -1
    cdef int spend(self, int64_t ns) except -1
    cdef int plan(self) except -1
    cdef int add(self, connection) except -1


cdef enum:
    PEER_SLOW = 1                         # the transport's buffer is full
    THROTTLED = 2                         # over a quota (fast_connection.pxd)


cdef class Connection:
    cdef object loop
    cdef object scheduler                 # runs callbacks: the loop or the poller
    cdef readonly object transport  # type: asyncio.Transport
    cdef RawTransport raw_transport       # the transport if it is one, else None
    cdef ByteProtocol protocol            # None: frames
    cdef Py_ssize_t protocol_bytes        # what it holds
    cdef list answers
    cdef Py_ssize_t answer_bytes
    cdef bytearray window
    cdef BufferPool buffer_pool
    cdef bytearray partial
    cdef Py_ssize_t partial_bytes
    cdef Py_ssize_t frame_bytes_max
    cdef Py_ssize_t high_water
    cdef FairQueue fair_queue
    cdef MemoryBudget budget              # None: no limit
    cdef Py_ssize_t unsent                # bytes not yet taken by the kernel
    cdef readonly Py_ssize_t held         # this connection's share of the budget
    cdef readonly bint closed
    cdef bint reads_always
    cdef int writing_paused               # PEER_SLOW, THROTTLED or both; 0: it may write and read
    cdef bint reading_stopped
    cdef bint flush_planned
    cdef bint resume_planned
    cdef bint reading_paused
    cdef readonly long long received_frames
    cdef readonly double last_seen

    cdef int attach(self, scheduler, RawTransport raw_transport) except -1
    cdef double now(self) except -1
    cdef uint8_t *get_window(self, Py_ssize_t start, Py_ssize_t *capacity) except NULL
    cdef void prefetch(self) noexcept
    cdef int data_received(self, Py_ssize_t start, Py_ssize_t count, bint late) except -1
    cdef int handle_frame(self, const Frame *frame) except -1
    cdef bint is_backpressured(self) noexcept
    cdef bint is_full(self) noexcept
    cdef int save_partial(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int grow_partial(self) except -1
    cdef int relocate_partial(self, const uint8_t *at, Py_ssize_t length, Py_ssize_t capacity) except -1
    cdef int drop_partial(self) except -1
    cdef Py_ssize_t deliver(self, const uint8_t *at, Py_ssize_t available) except -1
    cdef int update_flow_control(self, bint more) except -1
    cdef int report_held(self) except -1
    cdef int sent(self) except -1
    cdef int write_now(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef bint has_time(self) except -1
    cdef int spend(self, int64_t ns) except -1
    cdef Py_ssize_t deliver_bytes(self, const uint8_t *at, Py_ssize_t available) except -1
