"""Connection: one peer; frames in, one joined write per pass out (see connection.pxd).

RawTransport: sends a connection's bytes. ByteProtocol: what it speaks instead of frames.
FairQueue: serves connections with frames left over.
"""

from collections import deque
from libc.stdint cimport int64_t
from firearrow._native.base.clock cimport nanoseconds
import threading
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.string cimport memcpy, memmove
from firearrow._native.base.endian cimport get_i32
from firearrow._native.base.clock cimport nanoseconds, thread_cpu_ns
from firearrow._native.wire.command cimport command_of
from firearrow._native.wire.frame cimport FRAME_PARTIAL, Frame, frame_fault, is_http2_preface, next_frame
from firearrow._native.wire.limits cimport FRAME_BYTES_MAX, FRAMES_PER_PASS
from firearrow._native.wire.buffer_pool cimport BufferPool
from firearrow._native.wire.command import WireError


cdef class RawTransport:
    """Sends a connection's bytes without a copy; for native code only."""

    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Send the bytes, or keep a copy of what the kernel does not take at once."""
        raise NotImplementedError

    cdef double now(self) except -1:
        """The loop's time, or the time at which the current pass began."""
        raise NotImplementedError


cdef class ByteProtocol:
    """What a connection speaks instead of frames; for native code only."""

    cdef Py_ssize_t feed(self, const uint8_t *at, Py_ssize_t available) except -1:
        """Use received bytes; returns how many, fewer if there was no time for the rest. WireError closes the
        connection."""
        raise NotImplementedError

    cdef int writable(self) except -1:
        """The peer reads again."""
        raise NotImplementedError

    cdef int drain(self) except -1:
        """No more is read: ask the peer to send its requests elsewhere."""
        raise NotImplementedError

    cdef int end(self) except -1:
        """Send what is left to send: the connection closes."""
        raise NotImplementedError

    cdef int lost(self) except -1:
        """The connection was lost; called once."""
        raise NotImplementedError


cdef enum:
    SLICE_NS = 1000000


cdef class FairQueue:
    """Connections of a loop with complete frames left over; each iteration of the loop gives them a slice of
    time."""

    def __init__(self, loop):
        # type: (asyncio.AbstractEventLoop) -> None
        self.loop = loop
        self.connections = deque()

    cdef Py_ssize_t count(self):
        return len(self.connections)

    cdef int add(self, connection) except -1:
        """Call `connection.go_on()` once, after those already waiting."""
        self.connections.append(connection)
        return self.plan()

    cdef int plan(self) except -1:
        if not self.planned:
            self.planned = True
            self.loop.call_soon(self.run)
        return 0

    cdef bint has_time(self) except -1:
        """Whether a slow request may be handled now."""
        return self.running or (self.spent_ns < SLICE_NS and not self.connections)

    cdef int spend(self, int64_t ns) except -1:
        """A slow request took so long."""
        if self.running:
            return 0
        self.spent_ns += ns
        return self.plan()

    def run(self):
        # type: (...) -> None
        cdef int64_t deadline = nanoseconds() + SLICE_NS
        cdef Py_ssize_t left = len(self.connections)
        self.planned = False
        self.running = True
        try:
            while left > 0:
                left -= 1
                self.connections.popleft().go_on()
                if nanoseconds() > deadline:
                    break
        finally:
            self.running = False
            self.spent_ns = 0
            if self.connections:
                self.plan()


cdef enum:
    CONNECTION_NS = 2000000               # CPU time of one connection before others are served,
    SHARE_NS = 50000                      # less if many have work left, but at least this
    MUCH_BYTES = 131072                   # of replies, since copying them takes time, too

WINDOW_BYTES = 262144
cdef object OF_THREAD = threading.local()
cdef Py_ssize_t SMALL_PARTIAL = WINDOW_BYTES // 2


cdef FairQueue leftover_of(loop):
    """One for all connections of a loop, which is this thread's."""
    cdef FairQueue found = getattr(OF_THREAD, "fair_queue", None)
    if found is None or found.loop is not loop:
        found = OF_THREAD.fair_queue = FairQueue(loop)
    return found


cdef bytearray window_here():
    """This thread's window: another thread's loop may run between `get_buffer` and `buffer_updated`."""
    window = getattr(OF_THREAD, "window", None)
    if window is None:
        window = OF_THREAD.window = bytearray(WINDOW_BYTES)
    return window


cdef BufferPool thread_buffer_pool():
    buffer_pool = getattr(OF_THREAD, "buffer_pool", None)
    if buffer_pool is None:
        buffer_pool = OF_THREAD.buffer_pool = BufferPool()
    return buffer_pool


cdef class Connection:
    """One peer on a transport: complete frames go to `received`; all frames passed to `send` in one pass
    leave as one write.

    Subclasses name asyncio.BufferedProtocol as their second base."""

    def __init__(
        self, loop, *, frame_bytes_max=FRAME_BYTES_MAX, high_water=1 << 20, reads_always=False,
        MemoryBudget budget=None
    ):
        # type: (asyncio.AbstractEventLoop, int, int, bool, MemoryBudget | None) -> None
        """`reads_always`: keep reading while the peer does not read (clients).

        `budget` counts what the connection holds for a peer that stopped in the middle (`held`)."""
        self.loop = self.scheduler = loop
        self.window = window_here()
        self.buffer_pool = thread_buffer_pool()
        self.fair_queue = leftover_of(loop)
        self.reads_always = reads_always
        self.budget = budget
        self.frame_bytes_max = frame_bytes_max
        self.high_water = high_water
        self.answers = []
        self.partial = bytearray()
        self.last_seen = loop.time()

    # ---- for subclasses ----

    def received(self, command):
        # type: (RemotingCommand) -> None
        raise NotImplementedError

    def lost(self, reason):
        # type: (Exception | None) -> None
        """The connection was lost; called once."""

    def broken(self, fault):
        # type: (str) -> None
        """The frame boundary is lost; the connection is closed after this returns."""

    def http2(self):
        # type: (...) -> ByteProtocol | None
        """What serves HTTP/2, whose preface has come; None: this connection does not."""
        return None

    # ---- sending ----

    @property
    def write_paused(self):
        # type: (...) -> bool
        """The peer does not read its replies; its requests are not read either, unless `reads_always`. Or
        it is throttled, and many replies wait."""
        return self.is_full()

    def send(self, bytes frame not None):
        # type: (...) -> None
        """Queue one frame; the frames queued in one pass leave as one write."""
        if self.closed:
            return
        self.answers.append(frame)
        self.answer_bytes += len(frame)
        if not self.flush_planned:
            self.scheduler.call_soon(self.flush)
            self.flush_planned = True

    def flush(self):
        # type: (...) -> None
        self.flush_planned = False
        if self.answers and not self.closed:
            try:
                whole = self.answers[0] if len(self.answers) == 1 else b"".join(self.answers)
                self.answers.clear()
                self.answer_bytes = 0
                self.transport.write(whole)
            except MemoryError:
                self.abort()                  # otherwise its requests would get no reply or a part of one
                raise
            self.sent()

    cdef int sent(self) except -1:
        """After a write: a peer that takes its replies is alive."""
        if self.raw_transport is None and self.budget is not None:
            self.unsent = self.transport.get_write_buffer_size()
            self.report_held()
        if self.unsent == 0 and not self.writing_paused:
            self.last_seen = self.now()
        return 0

    cdef int write_now(self, const uint8_t *data, Py_ssize_t length) except -1:
        """For a protocol: send the bytes after those that wait."""
        if self.closed:
            return 0
        if self.raw_transport is not None:
            self.raw_transport.push(data, length)
        else:
            self.transport.write(PyBytes_FromStringAndSize(<const char *> data, length))
        return self.sent()

    cdef bint has_time(self) except -1:
        """Whether a protocol may use some more of the loop's time now, and the peer reads."""
        return not self.writing_paused and not self.reading_stopped and self.fair_queue.has_time()

    cdef int spend(self, int64_t ns) except -1:
        return self.fair_queue.spend(ns)

    def close(self):
        # type: (...) -> None
        """Send queued replies, then close."""
        if not self.closed and self.transport is not None:
            if self.protocol is not None:
                self.protocol.end()
            self.flush()
            self.transport.close()

    def stop_reading(self):
        # type: (...) -> None
        """Take no more requests; replies are still sent."""
        if self.protocol is not None and not self.reading_stopped:
            self.protocol.drain()
        self.reading_stopped = True
        self.update_flow_control(False)

    def abort(self):
        # type: (...) -> None
        if self.transport is not None:
            self.transport.abort()

    # ---- asyncio.BufferedProtocol (subclasses name it as their second base) ----

    def connection_made(self, transport):
        # type: (asyncio.BaseTransport) -> None
        self.transport = transport
        transport.set_write_buffer_limits(high=self.high_water)

    def connection_lost(self, reason):
        # type: (Exception | None) -> None
        self.closed = True
        self.answers.clear()
        self.partial = bytearray()
        if self.protocol is not None:
            self.protocol.lost()
            self.protocol = None              # breaks the reference cycle with it
        self.partial_bytes = self.unsent = self.protocol_bytes = 0
        self.report_held()
        self.lost(reason)

    def eof_received(self):
        # type: (...) -> bool | None
        return False

    def pause_writing(self):
        # type: (...) -> None
        self.writing_paused |= PEER_SLOW
        self.update_flow_control(False)

    def resume_writing(self):
        # type: (...) -> None
        self.writing_paused &= ~PEER_SLOW
        if self.protocol is not None:
            self.protocol.writable()
        self.update_flow_control(self.partial_bytes > 0)

    def get_buffer(self, sizehint):
        # type: (int) -> memoryview
        cdef Py_ssize_t capacity
        self.get_window(0, &capacity)
        buffer = self.window if self.partial_bytes < SMALL_PARTIAL else self.partial
        return memoryview(buffer)[self.partial_bytes:]

    def buffer_updated(self, Py_ssize_t count):
        # type: (...) -> None
        self.data_received(0, count, False)

    # ---- bytes in ----

    cdef int attach(self, scheduler, RawTransport raw_transport) except -1:
        """Attach to a poller: `scheduler` replaces the loop, `raw_transport` is the transport."""
        self.scheduler = scheduler
        self.raw_transport = raw_transport
        self.connection_made(raw_transport)
        return 0

    cdef double now(self) except -1:
        """The loop's time, or the time at which the poller's pass began."""
        return self.raw_transport.now() if self.raw_transport is not None else self.scheduler.time()

    cdef uint8_t *get_window(self, Py_ssize_t start, Py_ssize_t *capacity) except NULL:
        """Where the next bytes go, after `start` bytes of others in the window, and the capacity there; call
        `data_received` before anything else."""
        cdef bytearray buffer = self.window
        if self.partial_bytes >= SMALL_PARTIAL:
            if self.partial_bytes == len(self.partial):
                self.grow_partial()
            buffer = self.partial
            start = 0
        capacity[0] = len(buffer) - start - self.partial_bytes
        return <uint8_t *> PyByteArray_AS_STRING(buffer) + start + self.partial_bytes

    cdef void prefetch(self) noexcept:
        """Prefetch what the next bytes need."""

    cdef int data_received(self, Py_ssize_t start, Py_ssize_t count, bint late) except -1:
        """`late`: no time to process them now."""
        cdef uint8_t *at
        cdef Py_ssize_t available = self.partial_bytes + count
        cdef Py_ssize_t taken
        self.last_seen = self.now()
        if self.partial_bytes < SMALL_PARTIAL:
            at = <uint8_t *> PyByteArray_AS_STRING(self.window) + start
            if self.partial_bytes:
                memcpy(at, PyByteArray_AS_STRING(self.partial), self.partial_bytes)
        else:
            at = <uint8_t *> PyByteArray_AS_STRING(self.partial)
        if late:
            self.save_partial(at, available)
            return self.update_flow_control(True)
        taken = self.deliver(at, available)
        return self.save_partial(at + taken, available - taken)

    # ---- the frame loop ----

    cdef Py_ssize_t deliver(self, const uint8_t *at, Py_ssize_t available) except -1:
        """Pass every complete frame to `received`. Returns the bytes used (all of them once the connection
        closes)."""
        cdef Frame frame
        cdef Py_ssize_t taken = 0
        cdef long long deadline = 0
        cdef int status = 1
        cdef int frames = 0
        cdef int outcome
        if self.protocol is not None:
            return self.deliver_bytes(at, available)
        while frames < FRAMES_PER_PASS and not self.reading_stopped and not self.is_backpressured():
            status = next_frame(at + taken, available - taken, self.frame_bytes_max, &frame)
            if status == FRAME_PARTIAL:
                break
            if status < 0:
                if self.received_frames == 0 and is_http2_preface(at, available):
                    self.protocol = self.http2()
                    if self.protocol is not None:
                        return self.deliver_bytes(at, available)
                return self.give_up(frame_fault(status, at + taken, available - taken), available)
            try:
                outcome = self.handle_frame(&frame)
            except WireError as fault:
                return self.give_up(str(fault), available)
            if outcome == DEFERRED:
                break
            taken += frame.size
            frames += 1
            self.received_frames += 1
            if outcome == MAY_BE_CLOSED and (self.closed or self.transport.is_closing()):
                return available
            if outcome == MAY_BE_CLOSED or self.answer_bytes >= MUCH_BYTES:
                if deadline == 0:
                    deadline = thread_cpu_ns() + max(CONNECTION_NS // (1 + self.fair_queue.count()), SHARE_NS)
                elif thread_cpu_ns() > deadline and not self.reads_always:
                    break
        self.update_flow_control(status != FRAME_PARTIAL)
        return taken

    cdef Py_ssize_t deliver_bytes(self, const uint8_t *at, Py_ssize_t available) except -1:
        """As `deliver`, to the protocol."""
        cdef Py_ssize_t taken
        try:
            taken = self.protocol.feed(at, available)
        except WireError as fault:
            return self.give_up(str(fault), available)
        if self.closed or self.transport.is_closing():
            return available
        self.update_flow_control(taken < available)
        return taken

    cdef int handle_frame(self, const Frame *frame) except -1:
        """One whole frame. WireError closes the connection."""
        self.received(command_of(frame))
        return MAY_BE_CLOSED

    cdef bint is_backpressured(self) noexcept:
        """Whether the peer does not read its replies, so that its requests are not read either."""
        return not self.reads_always and (self.writing_paused != 0 or self.answer_bytes >= self.high_water)

    cdef bint is_full(self) noexcept:
        """Whether no answer should be made that can wait: too much of it is unread."""
        return self.writing_paused & PEER_SLOW != 0 or (
            self.writing_paused != 0 and self.answer_bytes >= self.high_water
        )

    def give_up(self, fault, available):
        self.broken(fault)
        self.close()
        return available

    cdef int save_partial(self, const uint8_t *at, Py_ssize_t length) except -1:
        """Copy the rest of a partial frame to the connection's own buffer."""
        if length > len(self.partial):
            self.relocate_partial(
                at, length, length if length < SMALL_PARTIAL else max(length, 2 * len(self.partial))
            )
        elif length > 0:
            memmove(PyByteArray_AS_STRING(self.partial), at, length)
        elif len(self.partial) > 0:
            self.drop_partial()
            self.partial = bytearray()
            self.report_held()
        self.partial_bytes = length
        return 0

    cdef int grow_partial(self) except -1:
        """The buffer is full: double it, or grow to what its frame still needs if that is less."""
        cdef const uint8_t *at = <const uint8_t *> PyByteArray_AS_STRING(self.partial)
        cdef Py_ssize_t missing = 4 + <Py_ssize_t> get_i32(at) - self.partial_bytes
        return self.relocate_partial(
            at, self.partial_bytes, self.partial_bytes + max(min(missing, self.partial_bytes), SMALL_PARTIAL)
        )

    cdef int relocate_partial(self, const uint8_t *at, Py_ssize_t length, Py_ssize_t capacity) except -1:
        """Copy to a buffer of `capacity` bytes, or to a larger one from the pool, preferably as large as the
        frame."""
        cdef bytearray larger = None
        if capacity >= SMALL_PARTIAL:
            larger = self.buffer_pool.acquire(max(capacity, 4 + <Py_ssize_t> get_i32(at)))
        if larger is None:
            larger = PyByteArray_FromStringAndSize(NULL, capacity)
        memcpy(PyByteArray_AS_STRING(larger), at, length)
        self.drop_partial()
        self.partial = larger
        self.report_held()
        return 0

    cdef int drop_partial(self) except -1:
        if len(self.partial) >= SMALL_PARTIAL:
            self.buffer_pool.release(self.partial)
        return 0

    cdef int report_held(self) except -1:
        """Report the change of this connection's share to the budget."""
        cdef Py_ssize_t now = len(self.partial) + self.unsent + self.protocol_bytes
        if self.budget is not None and now != self.held:
            self.budget.change(now - self.held)
            self.held = now
        return 0

    cdef int update_flow_control(self, bint more) except -1:
        """Pause or resume reading; schedule complete frames in `partial` that did not fit in this pass."""
        cdef bint stuck = self.writing_paused != 0 and not self.reads_always
        cdef bint pause = stuck or more or self.reading_stopped
        if pause == self.reading_paused and not more:
            return 0
        if self.closed or self.transport is None or self.transport.is_closing():
            return 0
        if pause != self.reading_paused:
            self.reading_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        if more and not stuck and not self.reading_stopped and not self.resume_planned:
            self.resume_planned = True
            self.fair_queue.add(self)
        return 0

    def go_on(self):
        """Process frames left over from an earlier pass."""
        cdef bytearray own = self.partial
        cdef Py_ssize_t taken
        self.resume_planned = False
        if self.closed or self.transport.is_closing():
            return
        if self.is_backpressured() and not self.writing_paused:
            self.flush()
        if self.is_backpressured():
            return
        taken = self.deliver(<uint8_t *> PyByteArray_AS_STRING(own), self.partial_bytes)
        if not self.closed:
            self.save_partial(<uint8_t *> PyByteArray_AS_STRING(own) + taken, self.partial_bytes - taken)
