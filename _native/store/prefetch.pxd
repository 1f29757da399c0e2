# Memory that will be written soon is called for early: where there is much of it, the wait is the longest part.


cdef extern from *:
    """
    #include <stddef.h>

    #define fa_prefetch(at) __builtin_prefetch((at), 1)

    static inline void fa_call_for(const void *at, size_t length)
    {
        for (size_t n = 0; n < length; n += 64)
            __builtin_prefetch((const char *) at + n, 1);
        __asm__ volatile("");  /* a function that only prefetches is taken for one that does nothing */
    }
    """
    void fa_prefetch(const void *at) noexcept nogil
    void fa_call_for(const void *at, size_t length) noexcept nogil
