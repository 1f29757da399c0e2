# Memory that will be written soon is called for early: where there is much of it, the wait is the longest part.


cdef extern from *:
    """
    #define fa_prefetch(at) __builtin_prefetch((at), 1)
    """
    void fa_prefetch(const void *at) noexcept nogil
