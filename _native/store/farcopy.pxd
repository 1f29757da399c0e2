# Copies of what lies far away: bodies in the mapped log that no cache holds. The processor's own string copy
# asks ahead without end where loads ask a few lines ahead only: of 1 KiB from memory 91 ns instead of 232
# (Zen 5). Where it is slow (no ERMS) or hardly begins (short texts) it is memcpy. `to` and `at` do not
# overlap.

cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
    #define FA_FAR_BYTES 512

    static int fa_copies_strings(void)
    {
        static int known = -1;               /* each thread that asks first finds the same */
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
