# EpollPoller: serves sockets without the loop's transports. They share one epoll set, which the loop watches
# as one reader.
#
#   a pass   1. epoll_wait
#            2. recv from several ready sockets into the window, one after another
#            3. pass their frames to their connections, one by one; 2 and 3 repeat in small groups, so that
#               code and data stay in the cache (EVENTS_MAX, PASS_NS)
#            4. run the planned callbacks: the commit of the write batch, then one send per connection
#            5. run what those planned: one send for each consumer whose held pull was answered
#
# Order: sockets left over from one pass are served first in the next, before newly ready ones; a re-armed
# socket goes to the end of the kernel's ready list. So no busy peer delays the other sockets or the loop's
# own callbacks.
#
# Sockets are edge triggered: the kernel reports new data once and need not check again. A socket that may
# have more data than was read, or whose backlog was not sent completely, is re-armed.
#
# Ownership: the poller owns a socket until its connection has been notified of the loss, which never happens
# within a pass: pointers from epoll stay valid to the pass's end. Bytes that the kernel does not take at once
# are copied to the socket's backlog; above `high_water` the connection is notified and stops reading.
#
# TLS: a socket added with a TlsContext gets a TlsSession if its first byte begins a handshake. A step
# of a handshake may take a millisecond, so it waits in `later`, of which each pass serves some after the
# ready sockets. So do sockets whose session has bytes that the window had no room for, since epoll does not
# report those. `handshakes` are bounded in number and in time; the oldest go first.
#
# `turns` has the length of each pass in microseconds. PassListener: is told when a pass began and ended, in
# nanoseconds, after the pass's last reply was sent. Thread: the loop's.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from firearrow._native.base.histogram cimport Histogram
from firearrow._native.wire.connection cimport Connection
from firearrow._native.wire.connection cimport RawTransport
from firearrow._native.wire.tls_session cimport TlsContext, TlsSession

cdef enum:
    EVENTS_MAX = 64

cdef struct PendingRead:
    void *transport                       # a SocketTransport
    Py_ssize_t start, count               # of its bytes in the window, after its connection's partial frame

cdef class PassListener:
    cdef int pass_ended(self, int64_t began_ns, int64_t ended_ns) except -1


cdef class EpollPoller:
    cdef object loop
    cdef int epoll
    cdef set transports
    cdef list planned, free_list          # swapped; reused, since memory may be short
    # [first, last): transports that epoll reported with `events`, not served yet
    cdef list waiting
    cdef uint32_t events[EVENTS_MAX]
    cdef int first, last
    cdef readonly bint in_pass
    cdef readonly Histogram turns  # The length of each pass, in microseconds.
    cdef PassListener listener            # None: there is none
    cdef bint time_cached                 # `now` is valid: during a pass
    cdef double now
    cdef PendingRead reads[EVENTS_MAX]    # reads not yet passed to their connections
    cdef int read_count
    cdef Py_ssize_t read_bytes            # of the window
    cdef object later                     # deque of SocketTransport
    cdef readonly dict handshakes  # type: dict[SocketTransport, float]  # When each began; the oldest first.
    cdef object handshake_timer

    cdef double current_time(self) except -1
    cdef int watch(self, SocketTransport transport, uint32_t interest, bint known) except -1
    cdef int measure(self, int64_t began) except -1
    cdef int schedule_pass(self) except -1
    cdef int run_planned(self) except -1
    cdef int serve_ready(self, long long deadline) except -1
    cdef int serve_leftover(self, long long deadline) except -1
    cdef int serve_later(self) except -1
    cdef int read_later(self, SocketTransport transport) except -1
    cdef int handshake_began(self, SocketTransport transport) except -1
    cdef bint handle_event(self, SocketTransport transport, uint32_t events, long long deadline) except -1
    cdef int read(self, SocketTransport transport, bint is_ending) except -1
    cdef bint deliver_reads(self, long long deadline) except -1
    cdef int disconnect_failed(self, SocketTransport transport, error) except -1
    cdef int notify(self, what, error) except -1

cdef class SocketTransport(RawTransport):
    cdef EpollPoller poller
    cdef object socket, remote, local
    cdef Connection connection
    cdef int fd
    cdef uint32_t interest
    cdef uint8_t *backlog
    cdef Py_ssize_t start, end, capacity      # of the backlog: [start, end) is unsent
    cdef Py_ssize_t high_water
    cdef bint closing, lost, writing_paused
    cdef TlsContext tls_context           # until the first byte
    cdef TlsSession tls                   # None: a plain connection
    cdef bint is_later                    # in the poller's `later`
    cdef bint unread                      # epoll has reported more than was read

    cdef ssize_t receive(self, Py_ssize_t start, Py_ssize_t *capacity) except -2
    cdef ssize_t begin_tls(self, const uint8_t *at, ssize_t count) except -2
    cdef ssize_t receive_tls(self, uint8_t *at, Py_ssize_t *capacity) except -2
    cdef ssize_t receive_ciphertext(self) except -2
    cdef int handshake(self, Py_ssize_t count) except -1
    cdef int fail_tls(self, error) except -1
    cdef int push_outgoing(self) except -1
    cdef int push_bytes(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef int check_peer_closed(self) except -1
    cdef int drain(self) except -1
    cdef int report_backlog(self) except -1
    cdef int append_backlog(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef int set_interest(self, uint32_t interest) except -1
    cdef int disconnect(self, reason) except -1
    cdef int shutdown_socket(self) except -1
