/* CRC-32 (zlib's polynomial) of a byte range, in the fastest way the processor supports: slices of eight bytes
 * everywhere, carry-less multiplication of 64 or 256 bytes at a time on x86-64, the CRC instruction on ARM.
 * Call `fa_crc_prepare` first; then any thread. */
#ifndef FIREARROW_CRC32_H
#define FIREARROW_CRC32_H

#include "crc_slices.h"

/* Way 0 is slices; each higher way is faster and handles the start of a range, leaving the rest to the lower ones. */
static int fa_crc_best;
static int fa_crc_best_here(void);
static size_t fa_crc_ahead(int way, uint32_t *crc, const uint8_t *at, size_t length);

static uint32_t fa_crc_table[8][256];

static void fa_crc_prepare(void)
{
    fa_crc_best = fa_crc_best_here();
    fa_crc_fill_table(fa_crc_table, 0xEDB88320u);
}

static uint32_t fa_crc_slices(uint32_t crc, const uint8_t *at, size_t length)
{
    return fa_crc_by_table(fa_crc_table, crc, at, length);
}

/* `way` is at most fa_crc_best. */
static uint32_t fa_crc32_by(int way, const uint8_t *at, size_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
    size_t taken = way > 0 ? fa_crc_ahead(way, &crc, at, length) : 0;
    return ~fa_crc_slices(crc, at + taken, length - taken);
}

static uint32_t fa_crc32(const uint8_t *at, size_t length)
{
    return fa_crc32_by(fa_crc_best, at, length);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#if defined(__clang__) && __clang_major__ >= 18 && __clang_major__ < 22
#define FA_WIDE "avx512f,evex512,vpclmulqdq,pclmul"
#else
#define FA_WIDE "avx512f,vpclmulqdq,pclmul"
#endif

#define FA_CRC_FOLD 1 /* four lanes of 16 bytes */
#define FA_CRC_WIDE 2 /* sixteen */

/* Constants of the reflected polynomial: x to the power of the distance plus and minus 32, by which a lane is carried
 * over that many bits. */
#define FA_CRC_OVER_2048 0x01322d1430, 0x011542778a
#define FA_CRC_OVER_512 0x01c6e41596, 0x0154442bd4
#define FA_CRC_OVER_128 0x00ccaa009e, 0x01751997d0

/* Reduces four lanes and the following bytes, a multiple of 16, to a CRC. Inline, so that the lanes stay in registers,
 * which saves a third of the time for 128 bytes. */
__attribute__((target("pclmul,sse4.1"), always_inline))
static inline uint32_t fa_crc_end(__m128i x[4], const uint8_t *at, size_t length)
{
    const __m128i over_512 = _mm_set_epi64x(FA_CRC_OVER_512), over_128 = _mm_set_epi64x(FA_CRC_OVER_128);
    const __m128i over_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i fold;
    while (length >= 64) {
        for (int n = 0; n < 4; n++) {
            fold = _mm_clmulepi64_si128(x[n], over_512, 0x00);
            x[n] = _mm_xor_si128(_mm_clmulepi64_si128(x[n], over_512, 0x11), fold);
            x[n] = _mm_xor_si128(x[n], _mm_loadu_si128((const __m128i *) (at + 16 * n)));
        }
        at += 64;
        length -= 64;
    }
    for (int n = 1; n < 4; n++) {
        fold = _mm_clmulepi64_si128(x[0], over_128, 0x00);
        x[0] = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x[0], over_128, 0x11), fold), x[n]);
    }
    while (length >= 16) {
        fold = _mm_clmulepi64_si128(x[0], over_128, 0x00);
        x[0] = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x[0], over_128, 0x11), fold),
                             _mm_loadu_si128((const __m128i *) at));
        at += 16;
        length -= 16;
    }
    fold = _mm_clmulepi64_si128(x[0], over_128, 0x10);
    x[0] = _mm_xor_si128(_mm_srli_si128(x[0], 8), fold);
    fold = _mm_srli_si128(x[0], 4);
    x[0] = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x[0], mask), over_64, 0x00), fold);
    fold = _mm_clmulepi64_si128(_mm_and_si128(x[0], mask), poly, 0x10);
    fold = _mm_clmulepi64_si128(_mm_and_si128(fold, mask), poly, 0x00);
    return (uint32_t) _mm_extract_epi32(_mm_xor_si128(x[0], fold), 1);
}

/* `length` is a multiple of 16, >= 64. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t fa_crc_fold(uint32_t crc, const uint8_t *at, size_t length)
{
    __m128i x[4];
    for (int n = 0; n < 4; n++)
        x[n] = _mm_loadu_si128((const __m128i *) (at + 16 * n));
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int) crc));
    return fa_crc_end(x, at + 64, length - 64);
}

/* Folds four lanes over a distance into four others. */
__attribute__((target(FA_WIDE)))
static inline __m512i fa_crc_carry(__m512i lanes, __m512i over, __m512i other)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, over, 0x00),
                                     _mm512_clmulepi64_epi128(lanes, over, 0x11), other, 0x96);
}

/* `length` is a multiple of 16, >= 256. */
__attribute__((target(FA_WIDE)))
static uint32_t fa_crc_wide(uint32_t crc, const uint8_t *at, size_t length)
{
    const __m512i over_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(FA_CRC_OVER_2048));
    const __m512i over_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(FA_CRC_OVER_512));
    __m512i x[4];
    __m128i last[4];
    for (int n = 0; n < 4; n++)
        x[n] = _mm512_loadu_si512(at + 64 * n);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int) crc)));
    for (at += 256, length -= 256; length >= 256; at += 256, length -= 256)
        for (int n = 0; n < 4; n++)
            x[n] = fa_crc_carry(x[n], over_2048, _mm512_loadu_si512(at + 64 * n));
    for (int n = 1; n < 4; n++)
        x[0] = fa_crc_carry(x[0], over_512, x[n]);
    for (; length >= 64; at += 64, length -= 64)
        x[0] = fa_crc_carry(x[0], over_512, _mm512_loadu_si512(at));
    _mm512_storeu_si512(last, x[0]);
    return fa_crc_end(last, at, length);
}

static int fa_crc_best_here(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_PCLMUL) || !(c & bit_SSE4_1))
        return 0;
    if (!(c & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX512F) || !(c & bit_VPCLMULQDQ))
        return FA_CRC_FOLD;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));        /* does the system save the wide registers? */
    return (low & 0xE6) == 0xE6 ? FA_CRC_WIDE : FA_CRC_FOLD;
}

static size_t fa_crc_ahead(int way, uint32_t *crc, const uint8_t *at, size_t length)
{
    size_t whole = length & ~(size_t) 15;
    if (whole < 64)
        return 0;
    *crc = way == FA_CRC_WIDE && whole >= 256 ? fa_crc_wide(*crc, at, whole) : fa_crc_fold(*crc, at, whole);
    return whole;
}
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <arm_acle.h>
#include <sys/auxv.h>

#ifdef __clang__
#define FA_WITH_CRC "crc"
#else
#define FA_WITH_CRC "+crc"
#endif

static int fa_crc_best_here(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

__attribute__((target(FA_WITH_CRC)))
static size_t fa_crc_ahead(int way, uint32_t *crc, const uint8_t *at, size_t length)
{
    size_t whole = length & ~(size_t) 7;
    uint64_t word;
    (void) way;
    for (const uint8_t *end = at + whole; at < end; at += 8) {
        memcpy(&word, at, 8);
        *crc = __crc32d(*crc, word);
    }
    return whole;
}
#else
static int fa_crc_best_here(void)
{
    return 0;
}

static size_t fa_crc_ahead(int way, uint32_t *crc, const uint8_t *at, size_t length)
{
    (void) way, (void) crc, (void) at, (void) length;
    return 0;
}
#endif

#endif
