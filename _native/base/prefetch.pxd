# Prefetching: memory that will be read or written soon is fetched into the cache early. A wrong address costs only time.
# Defined inline in the header so that every module compiles its own copy.

cdef extern from *:
    """
    #include <stddef.h>

    /* The empty statement: without it GCC takes a function that only prefetches for one that does nothing. */
    #define fa_prefetch_read(at) do { __builtin_prefetch(at); __asm__ volatile(""); } while (0)
    #define fa_prefetch_write(at) __builtin_prefetch((at), 1)

    static inline void fa_prefetch_write_range(const void *at, size_t length)
    {
        for (size_t n = 0; n < length; n += 64)
            __builtin_prefetch((const char *) at + n, 1);
        __asm__ volatile("");
    }
    """
    void prefetch_read "fa_prefetch_read"(const void *at) noexcept nogil
    void prefetch_write "fa_prefetch_write"(const void *at) noexcept nogil
    void prefetch_write_range "fa_prefetch_write_range"(const void *at, size_t length) noexcept nogil
