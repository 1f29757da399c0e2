/* Finds the end or the next escape of a JSON string, and copies up to the next character that must be escaped:
 * sixteen bytes at a step, never past `end`. Borrows the text. Any thread. */
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline const uint8_t *fa_quote_or_escape(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');
    while (end - at >= 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *) at);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(chunk, quote), _mm_cmpeq_epi8(chunk, escape)));
        if (found)
            return at + __builtin_ctz((unsigned) found);
        at += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* Copy up to the first quote, backslash or control character, with `ascii` also up to the first byte that is not
 * ASCII. Returns the bytes copied; up to `end - at` may be written. */
static inline intptr_t fa_copy(const uint8_t *at, const uint8_t *end, uint8_t *to, const int ascii) {
    const uint8_t *first = at;
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\'), control = _mm_set1_epi8(31);
    while (end - at >= 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *) at);
        /* bytes over 127 are negative as signed numbers */
        __m128i special = ascii ? _mm_cmpgt_epi8(_mm_set1_epi8(32), chunk) : _mm_cmpeq_epi8(_mm_min_epu8(chunk, control), chunk);
        special = _mm_or_si128(special, _mm_or_si128(_mm_cmpeq_epi8(chunk, quote), _mm_cmpeq_epi8(chunk, escape)));
        int found = _mm_movemask_epi8(special);
        _mm_storeu_si128((__m128i *) to, chunk);
        if (found)
            return at - first + __builtin_ctz((unsigned) found);
        at += 16;
        to += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 32 && !(ascii && *at >= 128))
        *to++ = *at++;
    return at - first;
}

static inline intptr_t fa_copy_plain(const uint8_t *at, const uint8_t *end, uint8_t *to) { return fa_copy(at, end, to, 0); }

static inline intptr_t fa_copy_ascii(const uint8_t *at, const uint8_t *end, uint8_t *to) { return fa_copy(at, end, to, 1); }
