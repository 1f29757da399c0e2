/* Where a JSON string ends or has an escape: sixteen bytes at a step, never a byte behind `end`. */
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline const uint8_t *fa_quote_or_escape(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');
    while (end - at >= 16) {
        __m128i piece = _mm_loadu_si128((const __m128i *) at);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(piece, quote), _mm_cmpeq_epi8(piece, escape)));
        if (found)
            return at + __builtin_ctz((unsigned) found);
        at += 16;
    }
#endif
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}
