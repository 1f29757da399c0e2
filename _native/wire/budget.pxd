# What all connections of a server hold together for peers that stopped in the middle: the room of partial
# frames, and bytes that the kernel does not take. Each connection says how its own part changed; past
# `bytes_max`, `exceeded` is called once, in the loop's next turn, and may end whom it wants.
#
# Thread: the loop's.

cdef class Budget:
    cdef object loop
    cdef object exceeded
    cdef bint planned
    cdef readonly long long held
    cdef long long most                   # since `give_back`
    cdef readonly long long bytes_max

    cdef int change(self, Py_ssize_t by) except -1
