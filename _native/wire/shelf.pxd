# Shelf: a pool of buffers for large frames. The connections of a thread reuse them one after another.
#
# Why: malloc maps a buffer of 1 MiB or more anew for each frame, and the page faults of fresh memory cost
# more than all other work on the frame.
#
# Ownership: a buffer belongs to its taker until it is returned; its old content stays in it. The pool keeps
# at most KEPT_BYTES, which no budget counts. Thread: the loop's.

cdef class BufferPool:
    cdef list buffers                       # bytearrays
    cdef readonly Py_ssize_t bytes

    cpdef bytearray acquire(self, Py_ssize_t length)
    cpdef int release(self, bytearray buffer) except -1
    cdef int drop(self, bytearray buffer) except -1
