"""BufferPool: reusable buffers for large frames (see buffer_pool.pxd).

MemoryBudget: counts the bytes that all connections hold, and reports an excess.
"""


KEPT_BYTES = 4 << 20  # type: int
cdef Py_ssize_t BYTES_MAX = KEPT_BYTES


cdef class BufferPool:
    """A pool of buffers for large frames, at most KEPT_BYTES. One thread."""

    def __init__(self):
        self.buffers = []

    cpdef bytearray acquire(self, Py_ssize_t length):
        # type: (...) -> bytearray | None
        """The smallest buffer of at least `length` bytes, with its old content; None: there is none."""
        cdef bytearray found = None, buffer
        for buffer in self.buffers:
            if len(buffer) >= length and (found is None or len(buffer) < len(found)):
                found = buffer
        if found is not None:
            self.drop(found)
        return found

    cpdef int release(self, bytearray buffer) except -1:
        # type: (...) -> None
        """Return a buffer that has no other users. Smaller buffers are dropped if the pool is full."""
        if len(buffer) > BYTES_MAX:
            return 0
        self.buffers.append(buffer)
        self.bytes += len(buffer)
        while self.bytes > BYTES_MAX:
            self.drop(min(self.buffers, key=len))
        return 0

    cdef int drop(self, bytearray buffer) except -1:
        self.buffers = [each for each in self.buffers if each is not buffer]
        self.bytes -= len(buffer)
        return 0


cdef extern from "base/platform.h" nogil:
    int release_free_memory "fa_release_free_memory"()

cdef enum:
    RELEASED_BYTES = 67108864


cdef class MemoryBudget:
    """Bytes held for peers that stopped in the middle. Above `bytes_max` the loop calls `exceeded()`.

    Loop thread."""

    def __init__(self, loop, bytes_max, exceeded):
        # type: (asyncio.AbstractEventLoop, int, Callable[[], object]) -> None
        self.loop = loop
        self.bytes_max = bytes_max
        self.exceeded = exceeded

    cdef int change(self, Py_ssize_t by) except -1:
        self.held += by
        self.peak = max(self.peak, self.held)
        if self.held > self.bytes_max and not self.planned:
            self.planned = True
            self.loop.call_soon(self.notify)
        return 0

    def return_memory(self):
        # type: (...) -> None
        """Return memory freed since the peak to the system; call it now and then."""
        if self.peak - self.held >= RELEASED_BYTES:
            self.peak = self.held
            with nogil:
                release_free_memory()

    def notify(self):
        self.planned = False
        if self.held > self.bytes_max:
            self.exceeded()
