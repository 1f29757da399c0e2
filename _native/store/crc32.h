/* CRC-32 (zlib's polynomial) of a byte range: carry-less multiplication where the processor has it, slices of eight
 * bytes elsewhere. `fa_crc32` may be called by any thread. */
#ifndef FIREARROW_CRC32_H
#define FIREARROW_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t fa_crc_table[8][256];

static int fa_crc_folds;
static int fa_crc_can_fold(void);

static void fa_crc_prepare(void)
{
    fa_crc_folds = fa_crc_can_fold();
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        fa_crc_table[0][n] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t n = 0; n < 256; n++)
            fa_crc_table[slice][n] =
                fa_crc_table[slice - 1][n] >> 8 ^ fa_crc_table[0][fa_crc_table[slice - 1][n] & 255];
}

static uint32_t fa_crc_slices(uint32_t crc, const uint8_t *at, size_t length)
{
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = fa_crc_table[7][word & 255] ^ fa_crc_table[6][word >> 8 & 255] ^ fa_crc_table[5][word >> 16 & 255]
            ^ fa_crc_table[4][word >> 24 & 255] ^ fa_crc_table[3][word >> 32 & 255]
            ^ fa_crc_table[2][word >> 40 & 255] ^ fa_crc_table[1][word >> 48 & 255] ^ fa_crc_table[0][word >> 56];
        at += 8;
        length -= 8;
    }
    while (length--)
        crc = crc >> 8 ^ fa_crc_table[0][(crc ^ *at++) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Folding by carry-less multiplication, constants for the reflected polynomial. `length` is a multiple of 16, >= 64. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t fa_crc_fold(uint32_t crc, const uint8_t *at, size_t length)
{
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x[4], fold;
    for (int n = 0; n < 4; n++)
        x[n] = _mm_loadu_si128((const __m128i *) (at + 16 * n));
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int) crc));
    at += 64;
    length -= 64;
    while (length >= 64) {
        for (int n = 0; n < 4; n++) {
            fold = _mm_clmulepi64_si128(x[n], k1k2, 0x00);
            x[n] = _mm_xor_si128(_mm_clmulepi64_si128(x[n], k1k2, 0x11), fold);
            x[n] = _mm_xor_si128(x[n], _mm_loadu_si128((const __m128i *) (at + 16 * n)));
        }
        at += 64;
        length -= 64;
    }
    for (int n = 1; n < 4; n++) {
        fold = _mm_clmulepi64_si128(x[0], k3k4, 0x00);
        x[0] = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x[0], k3k4, 0x11), fold), x[n]);
    }
    while (length >= 16) {
        fold = _mm_clmulepi64_si128(x[0], k3k4, 0x00);
        x[0] = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x[0], k3k4, 0x11), fold),
                             _mm_loadu_si128((const __m128i *) at));
        at += 16;
        length -= 16;
    }
    fold = _mm_clmulepi64_si128(x[0], k3k4, 0x10);
    x[0] = _mm_xor_si128(_mm_srli_si128(x[0], 8), fold);
    fold = _mm_srli_si128(x[0], 4);
    x[0] = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x[0], mask), k5, 0x00), fold);
    fold = _mm_clmulepi64_si128(_mm_and_si128(x[0], mask), poly, 0x10);
    fold = _mm_clmulepi64_si128(_mm_and_si128(fold, mask), poly, 0x00);
    return (uint32_t) _mm_extract_epi32(_mm_xor_si128(x[0], fold), 1);
}

static int fa_crc_can_fold(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t fa_crc_fold(uint32_t crc, const uint8_t *at, size_t length)
{
    return fa_crc_slices(crc, at, length);
}

static int fa_crc_can_fold(void)
{
    return 0;
}
#endif

static uint32_t fa_crc32(const uint8_t *at, size_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
    if (fa_crc_folds && length >= 64) {
        size_t folded = length & ~(size_t) 15;
        crc = fa_crc_fold(crc, at, folded);
        at += folded;
        length -= folded;
    }
    return ~fa_crc_slices(crc, at, length);
}

#endif
