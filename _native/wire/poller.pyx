"""EpollPoller: reads and writes sockets without the loop's transports (see poller.pxd)."""

import os
import socket as sockets
from collections import deque

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport close

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.wire.frame cimport is_proxy_header
from firearrow._native.wire.syscalls cimport (
    EPOLL_CLOEXEC, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll_create1, epoll_event, epoll_wait, unwatch_socket,
    watch_socket,
)
from firearrow._native.wire.syscalls cimport (
    MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR, is_transient, receive_now, send_now, shutdown,
)
from firearrow._native.wire.tls_session cimport SCRATCH_BYTES, TlsContext, TlsSession
from firearrow._native.wire.frame import PROXY_HEADER_REFUSED
from firearrow._native.wire.tls_session import TlsError

cdef enum:
    LOOK_AT_THE_CLOCK = 4                 # sockets between two reads of the clock
    # bytes of several sockets that stay in the cache until they are processed
    TOGETHER_BYTES = 32768
    LINE_BYTES = 64
    PASS_NS = 2000000
    BACKLOG_KEPT = 65536                  # a larger backlog is freed once it is empty
    LATER_NS = 1000000                    # for handshakes, in each pass; at least one step
    HANDSHAKES_MAX = 1024
    HANDSHAKE_S = 10
    FIRST_OF_TLS = 0x16

TURN_BOUNDS_US = (  # type: tuple[int, ...]
    50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000,
)


cdef class PassListener:
    """Native code that is called when each pass began and ended."""

    cdef int pass_ended(self, int64_t began_ns, int64_t ended_ns) except -1:
        raise NotImplementedError


cdef class EpollPoller:
    """Serves sockets without the loop's transports, many in one pass. Loop thread.

    Connections and the write batch use it in place of the loop: `time`, and `call_soon`, which runs callbacks
    after the pass's last socket, in order."""

    def __cinit__(self, loop):
        # type: (asyncio.AbstractEventLoop) -> None
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.loop = loop
        self.transports = set()
        self.planned, self.free_list = [], []
        self.turns = Histogram(TURN_BOUNDS_US)
        self.later, self.handshakes = deque(), {}
        self.waiting = [None] * EVENTS_MAX
        loop.add_reader(self.epoll, self.run_pass)

    def __dealloc__(self):
        if self.epoll >= 0:
            close(self.epoll)

    def close(self):
        # type: (...) -> None
        """Close the epoll set after the last socket: there is no further pass."""
        self.loop.remove_reader(self.epoll)
        if self.handshake_timer is not None:
            self.handshake_timer.cancel()

    # ---- used by connections and the write batch instead of the loop ----

    def time(self):
        # type: (...) -> float
        """The loop's time; within a pass, the time at which it began."""
        return self.current_time()

    cdef double current_time(self) except -1:
        return self.now if self.time_cached else self.loop.time()

    def call_soon(self, callback):
        # type: (Callable[[], object]) -> None
        """Run after the pass's last socket, or after the callbacks planned there; outside a pass in the
        loop's next iteration."""
        if self.in_pass:
            self.planned.append(callback)
        else:
            self.loop.call_soon(callback)

    def add(self, socket, Connection connection not None, TlsContext tls=None):
        # type: (socket, Connection, TlsContext | None) -> SocketTransport
        """Serve a connected socket from now on; the poller closes it. `tls`: its peer may begin a TLS
        handshake. OSError: its peer has disconnected already."""
        cdef SocketTransport transport = SocketTransport.__new__(SocketTransport)
        socket.setblocking(False)
        if socket.family in (sockets.AF_INET, sockets.AF_INET6):
            socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        transport.poller, transport.socket = self, socket
        transport.connection, transport.fd = connection, socket.fileno()
        transport.remote, transport.local = socket.getpeername(), socket.getsockname()
        transport.tls_context = tls
        transport.high_water = 1 << 20
        transport.interest = EPOLLIN
        self.watch(transport, EPOLLIN, False)
        self.transports.add(transport)
        connection.attach(self, transport)
        return transport

    cdef int watch(self, SocketTransport transport, uint32_t interest, bint known) except -1:
        """Report the socket when it is ready, which it may be already, and again when more arrives, but not
        for unread bytes. Its end is reported with the last bytes."""
        if watch_socket(self.epoll, transport.fd, <void *> transport, interest, known) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    def listen(self, PassListener listener not None):
        # type: (...) -> None
        self.listener = listener

    # ---- a pass ----

    def run_pass(self):
        """One pass; the loop calls it when any of the sockets is ready."""
        cdef int64_t began = nanoseconds()
        cdef long long deadline = began + PASS_NS
        try:
            self.now = self.loop.time()
            self.in_pass = self.time_cached = True
            if self.first < self.last:
                self.serve_leftover(deadline)
            else:
                self.serve_ready(deadline)
            if self.later:
                self.serve_later()
        finally:
            if self.first < self.last or self.later:
                self.schedule_pass()
            self.end_pass()
            self.measure(began)

    cdef int measure(self, int64_t began) except -1:
        cdef int64_t ended = nanoseconds()
        self.turns.add((ended - began) // 1000, 1)
        if self.listener is not None:
            self.listener.pass_ended(began, ended)
        return 0

    cdef int schedule_pass(self) except -1:
        try:
            self.loop.call_soon(self.run_pass)
        except MemoryError:                   # re-arm them: epoll reports them again
            while self.first < self.last:
                transport = <SocketTransport> self.waiting[self.first]
                self.first += 1
                if not transport.lost:
                    self.watch(transport, transport.interest, True)
        return 0

    def end_pass(self):
        """Run the planned callbacks, then those that they planned; what these plan goes to the loop."""
        try:
            self.run_planned()
            self.in_pass = False
            self.run_planned()
        finally:
            self.in_pass = self.time_cached = False

    cdef int run_planned(self) except -1:
        cdef list planned = self.planned
        self.planned, self.free_list = self.free_list, planned
        try:
            for callback in planned:
                try:
                    callback()
                except Exception as error:
                    self.notify(callback, error)
        finally:
            planned.clear()
        return 0

    cdef int serve_ready(self, long long deadline) except -1:
        cdef epoll_event events[EVENTS_MAX]
        cdef int count = epoll_wait(self.epoll, events, EVENTS_MAX, 0)
        cdef int n, left
        if count < 0 and errno != EINTR:
            raise OSError(errno, os.strerror(errno))
        for n in range(count):
            if self.handle_event(<SocketTransport> events[n].data.ptr, events[n].events, deadline):
                self.first, self.last = n + 1, count
                for left in range(n + 1, count):
                    self.waiting[left] = <SocketTransport> events[left].data.ptr
                    self.events[left] = events[left].events
                break
        self.deliver_reads(deadline)
        return 0

    cdef int serve_leftover(self, long long deadline) except -1:
        """Serve the sockets that the last pass had no time for."""
        cdef int n
        while self.first < self.last:
            n = self.first
            transport, self.waiting[n] = self.waiting[n], None
            self.first += 1
            if self.handle_event(<SocketTransport> transport, self.events[n], deadline):
                break
        self.deliver_reads(deadline)
        return 0

    cdef int serve_later(self) except -1:
        """Some of the sockets with handshakes, or with more plaintext than there was room for."""
        cdef long long deadline = nanoseconds() + LATER_NS
        cdef Py_ssize_t left = len(self.later)
        cdef SocketTransport transport
        while left > 0:
            left -= 1
            transport = self.later.popleft()
            transport.is_later = False
            if transport.lost or not transport.interest & EPOLLIN:
                continue
            try:
                self.read(transport, False)
            except Exception as error:
                self.disconnect_failed(transport, error)
            if self.read_bytes >= TOGETHER_BYTES or self.read_count == EVENTS_MAX:
                self.deliver_reads(deadline)
            if nanoseconds() > deadline:
                break
        self.deliver_reads(deadline)
        return 0

    cdef int read_later(self, SocketTransport transport) except -1:
        if not transport.is_later:
            self.later.append(transport)
            transport.is_later = True
            if not self.in_pass:
                self.loop.call_soon(self.run_pass)
        return 0

    cdef int handshake_began(self, SocketTransport transport) except -1:
        cdef SocketTransport oldest
        self.handshakes[transport] = self.current_time()
        if len(self.handshakes) > HANDSHAKES_MAX:
            oldest = next(iter(self.handshakes))
            oldest.fail_tls(TlsError(f"more than {HANDSHAKES_MAX} handshakes are incomplete"))
        if self.handshake_timer is None:
            self.handshake_timer = self.loop.call_later(1, self.expire_handshakes)
        return 0

    def expire_handshakes(self):
        """Close the connections whose handshake takes too long."""
        cdef SocketTransport transport
        cdef double oldest = self.loop.time() - HANDSHAKE_S
        self.handshake_timer = None
        for transport in [each for each, began in self.handshakes.items() if began < oldest]:
            transport.fail_tls(TlsError(f"the handshake was not complete after {HANDSHAKE_S} s"))
        if self.handshakes:
            self.handshake_timer = self.loop.call_later(1, self.expire_handshakes)

    cdef bint handle_event(self, SocketTransport transport, uint32_t events, long long deadline) except -1:
        """Whether the pass has no time for others. An error of one connection closes only that one. A socket
        that stopped reading after epoll reported it is skipped."""
        cdef bint late = False
        if events & EPOLLIN and not transport.interest & EPOLLIN:
            events &= ~<uint32_t> (EPOLLIN | EPOLLRDHUP)
        try:
            if events & EPOLLOUT and not transport.lost:
                transport.drain()
                if transport.start < transport.end and not transport.lost:
                    self.watch(transport, transport.interest, True)
                late = nanoseconds() > deadline
            if events & ~<uint32_t> EPOLLOUT and not transport.lost:
                if transport.tls is not None and not transport.tls.established:
                    self.read_later(transport)
                else:
                    self.read(transport, events & ~<uint32_t> (EPOLLIN | EPOLLOUT) != 0)
        except Exception as error:
            self.disconnect_failed(transport, error)
        if self.read_bytes >= TOGETHER_BYTES or self.read_count == EVENTS_MAX:
            return self.deliver_reads(deadline) or late
        return late

    cdef int read(self, SocketTransport transport, bint is_ending) except -1:
        """One recv; `deliver_reads` passes the bytes to the connection. `is_ending`: an end or error follows
        the last byte."""
        cdef Py_ssize_t capacity, before = transport.connection.partial_bytes
        cdef ssize_t count = transport.receive(self.read_bytes, &capacity)
        if count > 0:
            self.reads[self.read_count] = PendingRead(
                transport=<void *> transport, start=self.read_bytes, count=count
            )
            self.read_count += 1
            self.read_bytes += (before + count + LINE_BYTES - 1) & ~<Py_ssize_t> (LINE_BYTES - 1)
        if not transport.interest & EPOLLIN or transport.lost:
            return 0
        if transport.tls is not None and transport.tls.has_rest():
            transport.unread |= is_ending or count < 0    # a step of a handshake may have met the end
            self.read_later(transport)
        elif count == capacity or count < 0 or is_ending:
            self.watch(transport, transport.interest, True)
        return 0

    cdef bint deliver_reads(self, long long deadline) except -1:
        """Pass the bytes to their connections and prefetch the next one. Without time left, connections go on
        in the loop's next iteration. Whether the time is up."""
        cdef int n, count = self.read_count
        cdef bint late = False
        cdef SocketTransport transport
        self.read_count = 0
        self.read_bytes = 0
        for n in range(count):
            transport = <SocketTransport> self.reads[n].transport
            if n + 1 < count:
                (<SocketTransport> self.reads[n + 1].transport).connection.prefetch()
            try:
                if not transport.closing and not transport.lost:
                    transport.connection.data_received(self.reads[n].start, self.reads[n].count, late)
            except Exception as error:
                self.disconnect_failed(transport, error)
            if n % LOOK_AT_THE_CLOCK == LOOK_AT_THE_CLOCK - 1:
                late = nanoseconds() > deadline
        return late

    cdef int disconnect_failed(self, SocketTransport transport, error) except -1:
        transport.disconnect(error)
        return self.notify(transport.connection, error)

    cdef int notify(self, what, error) except -1:
        try:
            self.loop.call_exception_handler({"message": f"{what} failed", "exception": error})
        except MemoryError:
            pass                              # no memory to report it
        return 0


cdef class SocketTransport(RawTransport):
    """A socket of a poller, with the part of asyncio.Transport that connections use."""

    def __dealloc__(self):
        free(self.backlog)

    # ---- the part of asyncio.Transport that a connection uses ----

    def get_extra_info(self, name, default=None):
        # type: (str, Any) -> Any
        if name == "peername":
            return self.remote
        if name == "sockname":
            return self.local
        return self.socket if name == "socket" else default

    def set_write_buffer_limits(self, high):
        # type: (int) -> None
        self.high_water = high

    def is_closing(self):
        # type: (...) -> bool
        return self.closing or self.lost

    def write(self, bytes data not None):
        # type: (...) -> None
        self.push(<const uint8_t *> <const char *> data, len(data))

    def pause_reading(self):
        # type: (...) -> None
        self.set_interest(self.interest & ~<uint32_t> EPOLLIN)

    def resume_reading(self):
        # type: (...) -> None
        if not self.closing:
            self.set_interest(self.interest | EPOLLIN)

    def close(self):
        # type: (...) -> None
        """Close once the backlog is sent. Nothing more is read."""
        if self.closing or self.lost:
            return
        if self.tls is not None:
            self.tls.end()
            self.push_outgoing()
            if self.lost:
                return
        self.closing = True
        self.set_interest(self.interest & ~<uint32_t> EPOLLIN)
        if self.start == self.end:
            self.disconnect(None)

    def abort(self):
        # type: (...) -> None
        self.disconnect(None)

    # ---- reading ----

    cdef ssize_t receive(self, Py_ssize_t start, Py_ssize_t *capacity) except -2:
        """Receive into the connection's buffer after `start` bytes of others. Returns the count; if it equals
        `capacity`, there may be more; 0: end of the stream; -1: none for now."""
        cdef ssize_t count
        capacity[0] = -1
        if self.closing or not self.interest & EPOLLIN:
            self.check_peer_closed()
            return 0
        at = self.connection.get_window(start, capacity)
        if self.tls is not None:
            return self.receive_tls(at, capacity)
        count = receive_now(self.fd, at, capacity[0], MSG_DONTWAIT)
        if count == 0:
            self.close()
        elif count < 0 and not is_transient(errno):
            self.disconnect(OSError(errno, os.strerror(errno)))
        elif count > 0 and self.tls_context is not None:
            return self.begin_tls(at, count)
        return count

    cdef int check_peer_closed(self) except -1:
        """An event while reading is stopped: the peer is gone and will not take the backlog."""
        fault = self.socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_ERROR)
        return self.disconnect(OSError(fault, os.strerror(fault)) if fault else None)

    # ---- TLS ----

    cdef ssize_t begin_tls(self, const uint8_t *at, ssize_t count) except -2:
        """The first bytes: `count` if the connection is plain, -1 if they begin a handshake, or if the
        connection is closed."""
        cdef TlsContext context = self.tls_context
        self.tls_context = None
        if at[0] != FIRST_OF_TLS and not context.enforcing:
            return count
        if at[0] != FIRST_OF_TLS:
            self.connection.broken(
                PROXY_HEADER_REFUSED if is_proxy_header(at, count)
                else "only TLS connections are accepted (tls.server.mode=enforcing)"
            )
            self.disconnect(None)
            return -1
        self.tls = TlsSession(context)
        self.tls.keep(at, count)
        self.poller.handshake_began(self)
        if not self.lost:
            self.poller.read_later(self)
        return -1

    cdef ssize_t receive_tls(self, uint8_t *at, Py_ssize_t *capacity) except -2:
        """As `receive`, of plaintext."""
        cdef ssize_t count, taken
        cdef double now
        try:
            count = self.receive_ciphertext()
            if count == 0 or self.lost:
                return count
            if not self.tls.established:
                self.handshake(max(count, 0))
                return -1
            now = self.poller.current_time()
            self.tls.note_pause(now - self.connection.last_seen)
            self.tls.feed(max(count, 0))
            taken = self.tls.decrypt(at, capacity[0], now)
            if self.tls.shared.buffers.size > 0:
                self.push_outgoing()
        except TlsError as error:
            self.fail_tls(error)
            return -1
        if self.tls.ended and taken == 0:
            self.close()
            return 0
        if self.unread:
            capacity[0] = taken               # so that it is read again
        return taken if taken > 0 else -1

    cdef ssize_t receive_ciphertext(self) except -2:
        """Receive into the scratch buffer unless the session has bytes left. Returns the count; 0: end of the
        stream; -1: none for now, or none needed."""
        cdef ssize_t count
        if self.tls.has_rest():
            return -1
        count = receive_now(self.fd, self.tls.shared.scratch, SCRATCH_BYTES, MSG_DONTWAIT)
        if count == 0:
            self.close()
        elif count < 0 and not is_transient(errno):
            self.disconnect(OSError(errno, os.strerror(errno)))
        self.unread = count == SCRATCH_BYTES
        return count

    cdef int handshake(self, Py_ssize_t count) except -1:
        """One step, with `count` bytes of the scratch buffer. TlsError."""
        self.tls.handshake(count)
        if self.tls.established:
            self.poller.handshakes.pop(self, None)
        return self.push_outgoing()

    cdef int fail_tls(self, error) except -1:
        """Send OpenSSL's alert, if there is one, and disconnect."""
        if self.lost:
            return 0
        self.connection.broken(f"TLS: {error}")
        self.push_outgoing()
        return self.disconnect(None)

    # ---- writing ----

    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        cdef Py_ssize_t count
        if self.tls is None:
            return self.push_bytes(data, length)
        while length > 0 and not self.closing and not self.lost:
            count = min(length, SCRATCH_BYTES)
            try:
                self.tls.encrypt(data, count)
            except TlsError as error:
                return self.fail_tls(error)
            self.push_outgoing()
            data += count
            length -= count
        return 0

    cdef int push_outgoing(self) except -1:
        """Send the ciphertext of the session's last call."""
        cdef Py_ssize_t length = self.tls.shared.buffers.size
        self.tls.shared.buffers.size = 0
        return self.push_bytes(self.tls.shared.buffers.outgoing, length) if length > 0 else 0

    cdef int push_bytes(self, const uint8_t *data, Py_ssize_t length) except -1:
        cdef ssize_t sent = 0
        if self.closing or self.lost:
            return 0
        if self.start == self.end:
            sent = send_now(self.fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent == length:
                return 0
            if sent < 0:
                if not is_transient(errno):
                    return self.disconnect(OSError(errno, os.strerror(errno)))
                sent = 0
        self.append_backlog(data + sent, length - sent)
        self.set_interest(self.interest | EPOLLOUT)
        if self.end - self.start > self.high_water and not self.writing_paused:
            self.writing_paused = True
            self.connection.pause_writing()
        return 0

    cdef int append_backlog(self, const uint8_t *data, Py_ssize_t length) except -1:
        cdef Py_ssize_t capacity
        cdef uint8_t *larger
        if self.start > 0 and self.end + length > self.capacity:
            memmove(self.backlog, self.backlog + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if self.end + length > self.capacity:
            capacity = max(self.end + length, 2 * self.capacity)
            larger = <uint8_t *> realloc(self.backlog, capacity)
            if larger is NULL:
                raise MemoryError()
            self.backlog, self.capacity = larger, capacity
        memcpy(self.backlog + self.end, data, length)
        self.end += length
        return self.report_backlog()

    cdef int report_backlog(self) except -1:
        """Count the backlog in the connection's budget."""
        self.connection.unsent = self.capacity if self.start < self.end else 0
        return self.connection.report_held()

    cdef int drain(self) except -1:
        cdef ssize_t sent = send_now(
            self.fd, self.backlog + self.start, self.end - self.start, MSG_NOSIGNAL | MSG_DONTWAIT
        )
        if sent < 0:
            if not is_transient(errno):
                self.disconnect(OSError(errno, os.strerror(errno)))
            return 0
        self.start += sent
        self.connection.last_seen = self.poller.time()
        if self.start == self.end:
            self.start = self.end = 0
            if self.capacity > BACKLOG_KEPT:
                free(self.backlog)
                self.backlog, self.capacity = NULL, 0
            self.report_backlog()
            self.set_interest(self.interest & ~<uint32_t> EPOLLOUT)
            if self.closing:
                return self.disconnect(None)
        if self.writing_paused and self.end - self.start <= self.high_water // 4:
            self.writing_paused = False
            self.connection.resume_writing()
        return 0

    # ---- closing ----

    cdef double now(self) except -1:
        return self.poller.current_time()

    cdef int set_interest(self, uint32_t interest) except -1:
        if interest != self.interest and not self.lost:
            self.interest = interest
            self.poller.watch(self, interest, True)
            if interest & EPOLLIN and self.tls is not None and self.tls.has_rest():
                self.poller.read_later(self)
        return 0

    cdef int disconnect(self, reason) except -1:
        """Disconnect at once; the connection is notified in the loop's next iteration."""
        cdef bint out_of_memory = False
        if self.lost:
            return 0
        try:
            self.poller.loop.call_soon(self.notify_lost, reason)
        except MemoryError:
            out_of_memory = True
        if out_of_memory:
            return self.shutdown_socket()
        self.lost = True
        if self.tls is not None:
            self.poller.handshakes.pop(self, None)
        unwatch_socket(self.poller.epoll, self.fd)
        free(self.backlog)
        self.backlog = NULL
        self.start = self.end = self.capacity = 0
        return self.report_backlog()

    cdef int shutdown_socket(self) except -1:
        """No memory to report the loss: stop reading and writing; epoll reports the socket again."""
        self.closing = True
        shutdown(self.fd, SHUT_RDWR)
        return self.poller.watch(self, self.interest, True)

    def notify_lost(self, reason):
        try:
            self.connection.connection_lost(reason)
        finally:
            self.socket.close()
            self.poller.transports.discard(self)
            self.connection = None              # breaks the reference cycle with the connection
            self.tls = None
