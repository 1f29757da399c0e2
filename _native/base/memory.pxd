# Prefetching, and fast copies and comparisons of memory.
#
# prefetch_…      fetch memory into the cache before it is used; a wrong address costs only time
# copy_far        copy memory that is in no cache, like bodies in the mapped log: `rep movsb` prefetches
#                 without limit, loads only a few lines ahead (1 KiB: 91 ns instead of 232 on Zen 5); memcpy
#                 without ERMS and for short lengths; no overlap
# fa_same, fa_copy_short
#                 compare, copy short byte strings inline: a call of the C library costs as much as the work
#
# Inline: each module that cimports them compiles its own copies. Any thread.

from libc.stdint cimport uint8_t


cdef extern from *:
    """
    #include <stddef.h>

    /* The empty asm: without it GCC removes calls of a function that only prefetches, as without effect. */
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


cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
    #define FA_FAR_BYTES 512

    static int fa_copies_strings(void)
    {
        static int known = -1;               /* a race is harmless: all threads find the same */
        unsigned int a, b, c, d;
        if (known < 0)
            known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9));
        return known;
    }

    static inline void fa_copy_far(void *to, const void *at, size_t length)
    {
        if (length < FA_FAR_BYTES || !fa_copies_strings())
            memcpy(to, at, length);
        else
            __asm__ volatile("rep movsb" : "+D"(to), "+S"(at), "+c"(length) : : "memory");
    }
    #else
    #define fa_copy_far(to, at, length) memcpy(to, at, length)
    #endif
    """
    void copy_far "fa_copy_far"(void *to, const void *at, size_t length) noexcept nogil


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Compares eight bytes at a time; the last eight may overlap the previous ones. Fewer than eight: two
     * halves that may overlap. */
    static inline int fa_same(const uint8_t *one, const uint8_t *other, size_t length)
    {
        uint64_t a, b;
        uint32_t c, d;
        if (length >= 8) {
            for (size_t at = 0; at + 8 < length; at += 8) {
                memcpy(&a, one + at, 8);
                memcpy(&b, other + at, 8);
                if (a != b) return 0;
            }
            memcpy(&a, one + length - 8, 8);
            memcpy(&b, other + length - 8, 8);
            return a == b;
        }
        if (length >= 4) {
            memcpy(&c, one, 4);
            memcpy(&d, other, 4);
            if (c != d) return 0;
            memcpy(&c, one + length - 4, 4);
            memcpy(&d, other + length - 4, 4);
            return c == d;
        }
        while (length && one[length - 1] == other[length - 1]) length--;
        return !length;
    }

    /* Copies likewise; source and target must not overlap. */
    static inline void fa_copy_short(uint8_t *to, const uint8_t *source, size_t length)
    {
        uint64_t a;
        uint32_t c;
        if (length >= 8) {
            for (size_t at = 0; at + 8 < length; at += 8) {
                memcpy(&a, source + at, 8);
                memcpy(to + at, &a, 8);
            }
            memcpy(&a, source + length - 8, 8);
            memcpy(to + length - 8, &a, 8);
        } else if (length >= 4) {
            memcpy(&c, source, 4);
            memcpy(to, &c, 4);
            memcpy(&c, source + length - 4, 4);
            memcpy(to + length - 4, &c, 4);
        } else {
            while (length--) to[length] = source[length];
        }
    }
    """
    bint fa_same(const uint8_t *one, const uint8_t *other, size_t length) noexcept nogil
    void fa_copy_short(uint8_t *to, const uint8_t *source, size_t length) noexcept nogil
