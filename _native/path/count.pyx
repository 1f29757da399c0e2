"""Count: a sum and the number of additions to it (see count.pxd)."""


cdef class Count:
    pass
