"""Engine: sockets that are read and written without the loop's transports (see engine.pxd)."""

import os
import socket as sockets

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport close

from firearrow._native.wire.clocks cimport nanoseconds
from firearrow._native.wire.readiness cimport (
    EPOLL_CLOEXEC, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll_create1, epoll_event, epoll_wait, forget_socket,
    watch_socket,
)
from firearrow._native.wire.transfers cimport (
    MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR, comes_again, receive_now, send_now, shutdown,
)

cdef enum:
    LOOK_AT_THE_CLOCK = 4                 # sockets between two reads of the clock
    # bytes of several sockets that stay in the cache until they are handed over
    TOGETHER_BYTES = 32768
    LINE_BYTES = 64
    PASS_NS = 2000000
    BACKLOG_KEPT = 65536                  # a larger backlog is freed once it is empty


cdef class Engine:
    def __cinit__(self, loop):
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.loop = loop
        self.wired = set()
        self.planned, self.spare = [], []
        self.waiting = [None] * EVENTS_MAX
        loop.add_reader(self.epoll, self.turn)

    def __dealloc__(self):
        if self.epoll >= 0:
            close(self.epoll)

    def close(self):
        """After the last socket: there will be no further pass."""
        self.loop.remove_reader(self.epoll)

    # ---- used by connections and the turn instead of the loop ----

    def time(self):
        """The loop's time; within a pass, the time at which it began."""
        return self.moment()

    cdef double moment(self) except -1:
        return self.now if self.timed else self.loop.time()

    def call_soon(self, callback):
        """Run after the pass's last socket, or after the callbacks planned there; outside a pass in the
        loop's next iteration."""
        if self.passing:
            self.planned.append(callback)
        else:
            self.loop.call_soon(callback)

    def add(self, socket, Conn conn not None):
        """Serve a connected socket from now on: the engine closes it. OSError: its peer is gone already."""
        cdef Wire wire = Wire.__new__(Wire)
        socket.setblocking(False)
        if socket.family in (sockets.AF_INET, sockets.AF_INET6):
            socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        wire.engine, wire.socket, wire.conn, wire.fd = self, socket, conn, socket.fileno()
        wire.remote, wire.local = socket.getpeername(), socket.getsockname()
        wire.high_water = 1 << 20
        wire.interest = EPOLLIN
        self.watch(wire, EPOLLIN, False)
        self.wired.add(wire)
        conn.plug_in(self, wire)
        return wire

    cdef int watch(self, Wire wire, uint32_t interest, bint known) except -1:
        """Report the socket when it is ready, which it may be already, and again when more arrives, but not
        for unread bytes. Its end is reported with the last bytes."""
        if watch_socket(self.epoll, wire.fd, <void *> wire, interest, known) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    # ---- a pass ----

    def turn(self):
        """One pass; the loop calls it when any of the sockets is ready."""
        cdef long long deadline = nanoseconds() + PASS_NS
        try:
            self.now = self.loop.time()
            self.passing = self.timed = True
            if self.first < self.last:
                self.serve_waiting(deadline)
            else:
                self.serve_ready(deadline)
        finally:
            if self.first < self.last:
                self.go_on_later()
            self.end_pass()

    cdef int go_on_later(self) except -1:
        try:
            self.loop.call_soon(self.turn)
        except MemoryError:                   # re-arm them: epoll reports them again
            while self.first < self.last:
                wire = <Wire> self.waiting[self.first]
                self.first += 1
                if not wire.lost:
                    self.watch(wire, wire.interest, True)
        return 0

    def end_pass(self):
        """Run the planned callbacks, then those that they planned; what these plan goes to the loop."""
        try:
            self.run_planned()
            self.passing = False
            self.run_planned()
        finally:
            self.passing = self.timed = False

    cdef int run_planned(self) except -1:
        cdef list planned = self.planned
        self.planned, self.spare = self.spare, planned
        try:
            for callback in planned:
                try:
                    callback()
                except Exception as error:
                    self.tell(callback, error)
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
            if self.serve(<Wire> events[n].data.ptr, events[n].events, deadline):
                self.first, self.last = n + 1, count
                for left in range(n + 1, count):
                    self.waiting[left] = <Wire> events[left].data.ptr
                    self.events[left] = events[left].events
                break
        self.hand_over(deadline)
        return 0

    cdef int serve_waiting(self, long long deadline) except -1:
        """Sockets that the pass before had no time for come first."""
        cdef int n
        while self.first < self.last:
            n = self.first
            wire, self.waiting[n] = self.waiting[n], None
            self.first += 1
            if self.serve(<Wire> wire, self.events[n], deadline):
                break
        self.hand_over(deadline)
        return 0

    cdef bint serve(self, Wire wire, uint32_t events, long long deadline) except -1:
        """Whether the pass has no time for others. An error of one connection closes only that one. A socket
        that stopped reading after epoll reported it is skipped."""
        cdef bint late = False
        if events & EPOLLIN and not wire.interest & EPOLLIN:
            events &= ~<uint32_t> (EPOLLIN | EPOLLRDHUP)
        try:
            if events & EPOLLOUT and not wire.lost:
                wire.drain()
                if wire.start < wire.end and not wire.lost:
                    self.watch(wire, wire.interest, True)
                late = nanoseconds() > deadline
            if events & ~<uint32_t> EPOLLOUT and not wire.lost:
                self.read(wire, events & ~<uint32_t> (EPOLLIN | EPOLLOUT) != 0)
        except Exception as error:
            self.give_up(wire, error)
        if self.read_bytes >= TOGETHER_BYTES or self.read_count == EVENTS_MAX:
            return self.hand_over(deadline) or late
        return late

    cdef int read(self, Wire wire, bint is_ending) except -1:
        """One recv; `hand_over` passes the bytes to the connection. `is_ending`: an end or error follows the
        last byte."""
        cdef Py_ssize_t room, before = wire.conn.rest_bytes
        cdef ssize_t count = wire.receive(self.read_bytes, &room)
        if count > 0:
            self.reads[self.read_count] = Read(wire=<void *> wire, start=self.read_bytes, count=count)
            self.read_count += 1
            self.read_bytes += (before + count + LINE_BYTES - 1) & ~<Py_ssize_t> (LINE_BYTES - 1)
        if (count == room or count < 0 or is_ending) and wire.interest & EPOLLIN and not wire.lost:
            self.watch(wire, wire.interest, True)
        return 0

    cdef bint hand_over(self, long long deadline) except -1:
        """Pass the bytes to their connections and prefetch the next one. Without time left, connections go on
        in the loop's next iteration. Whether the time is up."""
        cdef int n, count = self.read_count
        cdef bint late = False
        cdef Wire wire
        self.read_count = 0
        self.read_bytes = 0
        for n in range(count):
            wire = <Wire> self.reads[n].wire
            if n + 1 < count:
                (<Wire> self.reads[n + 1].wire).conn.call_for()
            try:
                if not wire.closing and not wire.lost:
                    wire.conn.arrived(self.reads[n].start, self.reads[n].count, late)
            except Exception as error:
                self.give_up(wire, error)
            if n % LOOK_AT_THE_CLOCK == LOOK_AT_THE_CLOCK - 1:
                late = nanoseconds() > deadline
        return late

    cdef int give_up(self, Wire wire, error) except -1:
        wire.lose(error)
        return self.tell(wire.conn, error)

    cdef int tell(self, who, error) except -1:
        try:
            self.loop.call_exception_handler({"message": f"{who} failed", "exception": error})
        except MemoryError:
            pass                              # no memory to report it
        return 0


cdef class Wire(Plug):
    def __dealloc__(self):
        free(self.backlog)

    # ---- the part of asyncio.Transport that a connection uses ----

    def get_extra_info(self, name, default=None):
        if name == "peername":
            return self.remote
        if name == "sockname":
            return self.local
        return self.socket if name == "socket" else default

    def set_write_buffer_limits(self, high):
        self.high_water = high

    def is_closing(self):
        return self.closing or self.lost

    def write(self, bytes data not None):
        self.push(<const uint8_t *> <const char *> data, len(data))

    def pause_reading(self):
        self.want(self.interest & ~<uint32_t> EPOLLIN)

    def resume_reading(self):
        if not self.closing:
            self.want(self.interest | EPOLLIN)

    def close(self):
        """Close once the backlog is sent. Nothing more is read."""
        if self.closing or self.lost:
            return
        self.closing = True
        self.want(self.interest & ~<uint32_t> EPOLLIN)
        if self.start == self.end:
            self.lose(None)

    def abort(self):
        self.lose(None)

    # ---- reading ----

    cdef ssize_t receive(self, Py_ssize_t start, Py_ssize_t *room) except -2:
        """Receive into the connection's buffer after `start` bytes of others. Returns the count; if it equals
        `room`, there may be more; 0: end of the stream; -1: none for now."""
        cdef ssize_t count
        room[0] = -1
        if self.closing or not self.interest & EPOLLIN:
            self.look_for_the_end()
            return 0
        at = self.conn.place(start, room)
        count = receive_now(self.fd, at, room[0], MSG_DONTWAIT)
        if count == 0:
            self.close()
        elif count < 0 and not comes_again(errno):
            self.lose(OSError(errno, os.strerror(errno)))
        return count

    cdef int look_for_the_end(self) except -1:
        """An event while reading is stopped: the peer is gone and will not take the backlog."""
        fault = self.socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_ERROR)
        return self.lose(OSError(fault, os.strerror(fault)) if fault else None)

    # ---- writing ----

    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        cdef ssize_t sent = 0
        if self.closing or self.lost:
            return 0
        if self.start == self.end:
            sent = send_now(self.fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent == length:
                return 0
            if sent < 0:
                if not comes_again(errno):
                    return self.lose(OSError(errno, os.strerror(errno)))
                sent = 0
        self.store(data + sent, length - sent)
        self.want(self.interest | EPOLLOUT)
        if self.end - self.start > self.high_water and not self.writing_paused:
            self.writing_paused = True
            self.conn.pause_writing()
        return 0

    cdef int store(self, const uint8_t *data, Py_ssize_t length) except -1:
        cdef Py_ssize_t room
        cdef uint8_t *larger
        if self.start > 0 and self.end + length > self.room:
            memmove(self.backlog, self.backlog + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if self.end + length > self.room:
            room = max(self.end + length, 2 * self.room)
            larger = <uint8_t *> realloc(self.backlog, room)
            if larger is NULL:
                raise MemoryError()
            self.backlog, self.room = larger, room
        memcpy(self.backlog + self.end, data, length)
        self.end += length
        return self.tell_room()

    cdef int tell_room(self) except -1:
        """Count the backlog in the connection's budget."""
        self.conn.unsent = self.room if self.start < self.end else 0
        return self.conn.account()

    cdef int drain(self) except -1:
        cdef ssize_t sent = send_now(
            self.fd, self.backlog + self.start, self.end - self.start, MSG_NOSIGNAL | MSG_DONTWAIT
        )
        if sent < 0:
            if not comes_again(errno):
                self.lose(OSError(errno, os.strerror(errno)))
            return 0
        self.start += sent
        self.conn.last_seen = self.engine.time()
        if self.start == self.end:
            self.start = self.end = 0
            if self.room > BACKLOG_KEPT:
                free(self.backlog)
                self.backlog, self.room = NULL, 0
            self.tell_room()
            self.want(self.interest & ~<uint32_t> EPOLLOUT)
            if self.closing:
                return self.lose(None)
        if self.writing_paused and self.end - self.start <= self.high_water // 4:
            self.writing_paused = False
            self.conn.resume_writing()
        return 0

    # ---- life ----

    cdef double now(self) except -1:
        return self.engine.moment()

    cdef int want(self, uint32_t interest) except -1:
        if interest != self.interest and not self.lost:
            self.interest = interest
            self.engine.watch(self, interest, True)
        return 0

    cdef int lose(self, reason) except -1:
        """Disconnect at once; the connection is notified in the loop's next iteration."""
        cdef bint out_of_memory = False
        if self.lost:
            return 0
        try:
            self.engine.loop.call_soon(self.told, reason)
        except MemoryError:
            out_of_memory = True
        if out_of_memory:
            return self.shut()
        self.lost = True
        forget_socket(self.engine.epoll, self.fd)
        free(self.backlog)
        self.backlog = NULL
        self.start = self.end = self.room = 0
        return self.tell_room()

    cdef int shut(self) except -1:
        """No memory to report the loss: stop reading and writing; epoll reports the socket again."""
        self.closing = True
        shutdown(self.fd, SHUT_RDWR)
        return self.engine.watch(self, self.interest, True)

    def told(self, reason):
        try:
            self.conn.connection_lost(reason)
        finally:
            self.socket.close()
            self.engine.wired.discard(self)
            self.conn = None              # breaks the reference cycle with the connection
