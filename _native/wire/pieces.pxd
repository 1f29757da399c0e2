# Short byte strings compared and copied inline: a call of the C library would cost as much as the work
# itself. Each module that cimports them compiles its own copies. Any thread.

from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Compares eight bytes at a time; the last eight may overlap those before. Under eight: two halves that
     * may overlap. */
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

    /* The same way; not between places that overlap. */
    static inline void fa_copy_piece(uint8_t *to, const uint8_t *source, size_t length)
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
    void fa_copy_piece(uint8_t *to, const uint8_t *source, size_t length) noexcept nogil
