"""Count: a value and how often something was added to it (see count.pxd)."""


cdef class Count:
    pass
