# Budget: the bytes that the connections of a server hold for peers that stopped in the middle: buffers of
# partial frames, and bytes that the kernel does not take. Each connection reports how its own part changed.
# Above `bytes_max`, `exceeded` is called once, in the next iteration of the loop; it may close connections.
#
# Owner: the server; connections share it. Units: bytes. Thread: the loop's.

cdef class MemoryBudget:
    cdef object loop
    cdef object exceeded
    cdef bint planned
    cdef readonly long long held
    cdef long long most                   # since the last `return_memory`
    cdef readonly long long bytes_max

    cdef int change(self, Py_ssize_t by) except -1
