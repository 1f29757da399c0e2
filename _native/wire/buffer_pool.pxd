# Shelf: a pool of buffers for large frames. The connections of a thread reuse them one after another.
#
# Why: malloc maps a buffer of 1 MiB or more anew for each frame, and the page faults of fresh memory cost
# more than all other work on the frame.
#
# Ownership: a buffer belongs to its taker until it is returned; its old content stays in it. The pool keeps
# at most KEPT_BYTES, which no budget counts. Thread: the loop's.
# Budget: the bytes that the connections of a server hold for peers that stopped in the middle: buffers of
# partial frames, and bytes that the kernel does not take. Each connection reports how its own part changed.
# Above `bytes_max`, `exceeded` is called once, in the next iteration of the loop; it may close connections.
#
# Owner: the server; connections share it. Units: bytes. Thread: the loop's.


cdef class BufferPool:
    cdef list buffers                       # bytearrays
    cdef readonly Py_ssize_t bytes

    cpdef bytearray acquire(self, Py_ssize_t length)
    cpdef int release(self, bytearray buffer) except -1
    cdef int drop(self, bytearray buffer) except -1


cdef class MemoryBudget:
    cdef object loop
    cdef object exceeded
    cdef bint planned
    cdef readonly long long held
    cdef long long most                   # since the last `return_memory`
    cdef readonly long long bytes_max

    cdef int change(self, Py_ssize_t by) except -1
