/* CRC-32C (Castagnoli) of a byte range: by the processor's instruction on x86-64 and ARM, else by slices of eight
 * bytes. Another polynomial than that of the records' body CRC, so that what one of them misses the other finds.
 * Call `fa_crc32c_prepare` first; then any thread. */
#ifndef FIREARROW_CRC32C_H
#define FIREARROW_CRC32C_H

#include "crc_slices.h"

/* Way 0 is slices, way 1 the instruction. */
static int fa_crc32c_best;
static int fa_crc32c_best_here(void);
static uint32_t fa_crc32c_words(uint32_t crc, const uint8_t *at, size_t length);

static uint32_t fa_crc32c_table[8][256];

static void fa_crc32c_prepare(void)
{
    fa_crc32c_best = fa_crc32c_best_here();
    fa_crc_fill_table(fa_crc32c_table, 0x82F63B78u);
}

static uint32_t fa_crc32c_slices(uint32_t crc, const uint8_t *at, size_t length)
{
    return fa_crc_by_table(fa_crc32c_table, crc, at, length);
}

/* Continues `crc`, which is 0 for the first bytes. `way` is at most fa_crc32c_best. */
static uint32_t fa_crc32c_by(int way, uint32_t crc, const uint8_t *at, size_t length)
{
    size_t words = way > 0 ? length & ~(size_t) 7 : 0;
    crc = ~crc;
    if (words)
        crc = fa_crc32c_words(crc, at, words);
    return ~fa_crc32c_slices(crc, at + words, length - words);
}

/* The CRC of two ranges one after the other, the second of which has 2^20 bytes: `first` carried over so many zeros,
 * which is linear in its 32 bits. */
static uint32_t fa_crc32c_over_mib[32];

static uint32_t fa_crc32c_apply(const uint32_t matrix[32], uint32_t crc)
{
    uint32_t sum = 0;
    for (int bit = 0; crc; bit++, crc >>= 1)
        if (crc & 1)
            sum ^= matrix[bit];
    return sum;
}

static void fa_crc32c_prepare_mib(void)
{
    uint32_t once[32], twice[32];
    for (int bit = 0; bit < 32; bit++) {                       /* over one byte */
        uint32_t crc = 1u << bit;
        once[bit] = crc >> 8 ^ fa_crc32c_table[0][crc & 255];
    }
    for (int doubling = 0; doubling < 20; doubling++) {
        for (int bit = 0; bit < 32; bit++)
            twice[bit] = fa_crc32c_apply(once, once[bit]);
        memcpy(once, twice, sizeof once);
    }
    memcpy(fa_crc32c_over_mib, once, sizeof once);
}

static uint32_t fa_crc32c_append_mib(uint32_t first, uint32_t second)
{
    return fa_crc32c_apply(fa_crc32c_over_mib, first) ^ second;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <nmmintrin.h>

/* clang has had the instruction apart from SSE 4.2 since 14; a target such as Zig's baseline has neither. */
#if defined(__clang__) && __clang_major__ >= 14
#define FA_WITH_CRC32C "sse4.2,crc32"
#else
#define FA_WITH_CRC32C "sse4.2"
#endif

static int fa_crc32c_best_here(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
}

__attribute__((target(FA_WITH_CRC32C)))
static uint32_t fa_crc32c_words(uint32_t crc, const uint8_t *at, size_t length)
{
    uint64_t word, sum = crc;
    for (const uint8_t *end = at + length; at < end; at += 8) {
        memcpy(&word, at, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    return (uint32_t) sum;
}
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <arm_acle.h>
#include <sys/auxv.h>

#ifdef __clang__
#define FA_WITH_CRC32C "crc"
#else
#define FA_WITH_CRC32C "+crc"
#endif

static int fa_crc32c_best_here(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

__attribute__((target(FA_WITH_CRC32C)))
static uint32_t fa_crc32c_words(uint32_t crc, const uint8_t *at, size_t length)
{
    uint64_t word;
    for (const uint8_t *end = at + length; at < end; at += 8) {
        memcpy(&word, at, 8);
        crc = __crc32cd(crc, word);
    }
    return crc;
}
#else
static int fa_crc32c_best_here(void)
{
    return 0;
}

static uint32_t fa_crc32c_words(uint32_t crc, const uint8_t *at, size_t length)
{
    return fa_crc32c_slices(crc, at, length);
}
#endif

#endif
