"""RequestTimes: how long requests took; PutCounts: what was sent to a topic (see request_times.pxd)."""

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.wire.codes cimport (
    ACK_MESSAGE, LITE_PULL_MESSAGE, PULL_MESSAGE, SEND_BATCH_MESSAGE, SEND_MESSAGE, SEND_MESSAGE_V2,
)

BOUNDS_US = (  # type: tuple[int, ...]
    50, 100, 250, 500, 1000, 3000, 5000, 7000, 10000, 30000, 100000, 300000, 1000000, 2000000, 3000000,
)
"""Bounds of the latency of a request, in microseconds; Apache's are among them."""
SIZE_BOUNDS = (1024, 4096, 524288, 1048576, 2097152, 4194304)  # type: tuple[int, ...]
"""Bounds of a message's size in bytes, as Apache's."""
ANSWERS_MAX = 1024  # type: int
"""Combinations of request code and answer that have a histogram of their own; all others share one, of code
-1."""
OTHERS = -1

cdef int64_t *LARGER_BOUNDS = [4096, 524288, 1048576, 2097152, 4194304]
cdef tuple CODES = (
    SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, PULL_MESSAGE, LITE_PULL_MESSAGE, ACK_MESSAGE,
    PULL_MESSAGE, LITE_PULL_MESSAGE,
)


cdef class PutCounts:
    """Messages sent to one topic with one message type, and their bytes in the log."""

    cdef void note_size(self, int64_t size, int64_t messages) noexcept:
        """`messages` of more than SMALL_BYTES each."""
        cdef int n = 0
        while n < LARGER_SIZES - 1 and size > LARGER_BOUNDS[n]:
            n += 1
        self.larger[n] += messages

    def add(self, int64_t messages, int64_t size):
        # type: (...) -> None
        self.messages += messages
        self.bytes += size
        if size > SMALL_BYTES * messages:
            self.note_size(size // messages, messages)

    def sizes(self):
        # type: (...) -> list[int]
        """How many messages have a size up to each of SIZE_BOUNDS, and how many a larger one."""
        cdef int n
        larger = [self.larger[n] for n in range(LARGER_SIZES)]
        return [max(self.messages - sum(larger), 0), *larger]


cdef class RequestTimes(PassListener):
    """Latency of all requests, by their code and the code of their answer."""

    def __cinit__(self):
        self.kinds = [Histogram(BOUNDS_US) for _ in range(KINDS)]
        self.answers = {}

    def measure_turns(self, loop not None):
        # type: (asyncio.AbstractEventLoop) -> None
        """There is no poller: a turn of the loop counts as a pass."""
        self.loop = loop

    # ---- the fast path ----

    cdef int answered(self, int kind, int64_t times) except -1:
        """Requests of this pass have their answer, which leaves before the pass ends."""
        self.in_pass[kind] += times
        if not self.any_in_pass:
            self.any_in_pass = True
            if self.loop is not None:
                self.began_ns = nanoseconds()
                self.loop.call_soon(self.turn_ended)
        return 0

    def turn_ended(self):
        self.pass_ended(self.began_ns, nanoseconds())

    cdef int pass_ended(self, int64_t began_ns, int64_t ended_ns) except -1:
        cdef int kind
        if not self.any_in_pass:
            return 0
        self.any_in_pass = False
        for kind in range(KINDS):
            if self.in_pass[kind]:
                self.record(kind, ended_ns - began_ns, self.in_pass[kind])
                self.in_pass[kind] = 0
        return 0

    cdef int record(self, int kind, int64_t ns, int64_t times) except -1:
        (<Histogram> self.kinds[kind]).add(ns // 1000, times)
        return 0

    cdef int refused(self, int kind, int32_t code, int64_t times) except -1:
        """Requests of the fast path whose messages could not be stored."""
        self.answers_of((CODES[kind], code, False, False)).add(0, times)
        return 0

    # ---- the handlers ----

    def answer(self, RemotingCommand answer not None, bint is_closed):
        # type: (...) -> None
        """An answer of a handler leaves, or is dropped because its connection is closed."""
        if answer.since_ns:
            self.answers_of((answer.asked, answer.code, answer.held, is_closed)).add(
                (nanoseconds() - answer.since_ns) // 1000, 1
            )

    cdef Histogram answers_of(self, tuple key):
        found = self.answers.get(key)
        if found is None and len(self.answers) >= ANSWERS_MAX:
            key = (OTHERS, OTHERS, False, False)
            found = self.answers.get(key)
        if found is None:
            found = self.answers[key] = Histogram(BOUNDS_US)
        return <Histogram> found

    # ---- reading ----

    def all(self):
        # type: (...) -> list[tuple[int, int, bool, bool, Histogram]]
        """Request code, code of the answer, whether the request waited for messages, whether the
        connection was closed; and its latency in microseconds. One combination may be there twice."""
        found = [
            (CODES[kind], 0, kind >= KIND_HELD_PULL, False, self.kinds[kind]) for kind in range(KINDS)
        ]
        found += [(*key, histogram) for key, histogram in self.answers.items()]
        return found
