# BufferPool: buffers for large frames, reused by the connections of a thread. Without it malloc maps a buffer
# of 1 MiB or more again for each frame, and the page faults of fresh memory cost more than all other work on
# it. Ownership: a buffer belongs to the caller of `acquire` until its `release`; its old content stays in it.
# The pool keeps at most KEPT_BYTES, which no budget counts.
#
# MemoryBudget: the bytes that the connections of a server hold for peers that stopped in the middle: buffers
# of partial frames, and bytes that the kernel does not take. Each connection reports changes of its share.
# Above
# `bytes_max`, `exceeded` is called once, in the next iteration of the loop; it may close connections.
# Owner: the server; connections share it.
#
# Units: bytes. Thread: the loop's.


cdef class BufferPool:
    cdef list buffers                     # bytearrays
    cdef readonly Py_ssize_t bytes

    cpdef bytearray acquire(self, Py_ssize_t length)
    cpdef int release(self, bytearray buffer) except -1
    cdef int drop(self, bytearray buffer) except -1


cdef class MemoryBudget:
    cdef object loop
    cdef object exceeded
    cdef bint planned
    cdef readonly long long held
    cdef long long peak                   # since the last `return_memory`
    cdef public long long bytes_max

    cdef int change(self, Py_ssize_t by) except -1
