/* HMAC-SHA1 (RFC 2104, FIPS 180-4) of several byte ranges, with the processor's SHA instructions on x86-64 if it has
 * them. The states after the key's two pads are computed once for each key. Call `fa_sha1_prepare` first; then any
 * thread. */
#ifndef FIREARROW_SHA1_H
#define FIREARROW_SHA1_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FA_SHA1_BLOCK 64
#define FA_SHA1_DIGEST 20

typedef struct {
    uint32_t state[5];
    uint32_t used;                     /* bytes in `block` */
    uint64_t bytes;                    /* hashed before those */
    uint8_t block[FA_SHA1_BLOCK];
} fa_sha1;

static int fa_sha1_best;               /* 0: everywhere, 1: SHA instructions */

static inline uint32_t fa_sha1_left(uint32_t x, int n) { return x << n | x >> (32 - n); }

#define FA_SHA1_TURNS(first, last, f, k) \
    for (int n = first; n < last; n++) { \
        t = fa_sha1_left(a, 5) + (f) + e + k + w[n]; \
        e = d; \
        d = c; \
        c = fa_sha1_left(b, 30); \
        b = a; \
        a = t; \
    }

static void fa_sha1_plain(uint32_t state[5], const uint8_t *at, size_t blocks)
{
    for (; blocks--; at += FA_SHA1_BLOCK) {
        uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], t;
        for (int n = 0; n < 16; n++)
            w[n] = (uint32_t) at[4 * n] << 24 | (uint32_t) at[4 * n + 1] << 16 | (uint32_t) at[4 * n + 2] << 8
                | at[4 * n + 3];
        for (int n = 16; n < 80; n++)
            w[n] = fa_sha1_left(w[n - 3] ^ w[n - 8] ^ w[n - 14] ^ w[n - 16], 1);
        FA_SHA1_TURNS(0, 20, d ^ (b & (c ^ d)), 0x5A827999u);
        FA_SHA1_TURNS(20, 40, b ^ c ^ d, 0x6ED9EBA1u);
        FA_SHA1_TURNS(40, 60, (b & c) | (d & (b | c)), 0x8F1BBCDCu);
        FA_SHA1_TURNS(60, 80, b ^ c ^ d, 0xCA62C1D6u);
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

static int fa_sha1_best_here(void)
{
    unsigned int a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
}

/* Four rounds: `m` are their message words, `e` the state that was rotated out four rounds ago. */
#define FA_SHA1_ROUNDS(e0, e1, m, f) \
    e0 = _mm_sha1nexte_epu32(e0, m); \
    e1 = abcd; \
    abcd = _mm_sha1rnds4_epu32(abcd, e0, f)

/* The next message words, from the last sixteen. */
#define FA_SHA1_WORDS(m0, m1, m2, m3) \
    m0 = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(m0, m1), m2), m3)

__attribute__((target("sha,sse4.1,ssse3")))
static void fa_sha1_quick(uint32_t state[5], const uint8_t *at, size_t blocks)
{
    const __m128i turn = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *) state), 0x1B);
    __m128i e0 = _mm_set_epi32((int) state[4], 0, 0, 0), e1;
    for (; blocks--; at += FA_SHA1_BLOCK) {
        const __m128i abcd_before = abcd, e_before = e0;
        const __m128i *from = (const __m128i *) at;
        __m128i m0 = _mm_shuffle_epi8(_mm_loadu_si128(from), turn);
        __m128i m1 = _mm_shuffle_epi8(_mm_loadu_si128(from + 1), turn);
        __m128i m2 = _mm_shuffle_epi8(_mm_loadu_si128(from + 2), turn);
        __m128i m3 = _mm_shuffle_epi8(_mm_loadu_si128(from + 3), turn);
        e0 = _mm_add_epi32(e0, m0);
        e1 = abcd;
        abcd = _mm_sha1rnds4_epu32(abcd, e0, 0);
        FA_SHA1_ROUNDS(e1, e0, m1, 0);
        FA_SHA1_ROUNDS(e0, e1, m2, 0);
        FA_SHA1_ROUNDS(e1, e0, m3, 0);
        FA_SHA1_WORDS(m0, m1, m2, m3);
        FA_SHA1_ROUNDS(e0, e1, m0, 0);
        FA_SHA1_WORDS(m1, m2, m3, m0);
        FA_SHA1_ROUNDS(e1, e0, m1, 1);
        FA_SHA1_WORDS(m2, m3, m0, m1);
        FA_SHA1_ROUNDS(e0, e1, m2, 1);
        FA_SHA1_WORDS(m3, m0, m1, m2);
        FA_SHA1_ROUNDS(e1, e0, m3, 1);
        FA_SHA1_WORDS(m0, m1, m2, m3);
        FA_SHA1_ROUNDS(e0, e1, m0, 1);
        FA_SHA1_WORDS(m1, m2, m3, m0);
        FA_SHA1_ROUNDS(e1, e0, m1, 1);
        FA_SHA1_WORDS(m2, m3, m0, m1);
        FA_SHA1_ROUNDS(e0, e1, m2, 2);
        FA_SHA1_WORDS(m3, m0, m1, m2);
        FA_SHA1_ROUNDS(e1, e0, m3, 2);
        FA_SHA1_WORDS(m0, m1, m2, m3);
        FA_SHA1_ROUNDS(e0, e1, m0, 2);
        FA_SHA1_WORDS(m1, m2, m3, m0);
        FA_SHA1_ROUNDS(e1, e0, m1, 2);
        FA_SHA1_WORDS(m2, m3, m0, m1);
        FA_SHA1_ROUNDS(e0, e1, m2, 2);
        FA_SHA1_WORDS(m3, m0, m1, m2);
        FA_SHA1_ROUNDS(e1, e0, m3, 3);
        FA_SHA1_WORDS(m0, m1, m2, m3);
        FA_SHA1_ROUNDS(e0, e1, m0, 3);
        FA_SHA1_WORDS(m1, m2, m3, m0);
        FA_SHA1_ROUNDS(e1, e0, m1, 3);
        FA_SHA1_WORDS(m2, m3, m0, m1);
        FA_SHA1_ROUNDS(e0, e1, m2, 3);
        FA_SHA1_WORDS(m3, m0, m1, m2);
        FA_SHA1_ROUNDS(e1, e0, m3, 3);
        e0 = _mm_sha1nexte_epu32(e0, e_before);
        abcd = _mm_add_epi32(abcd, abcd_before);
    }
    _mm_storeu_si128((__m128i *) state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t) _mm_extract_epi32(e0, 3);
}
#else
static int fa_sha1_best_here(void) { return 0; }
static void fa_sha1_quick(uint32_t state[5], const uint8_t *at, size_t blocks) { fa_sha1_plain(state, at, blocks); }
#endif

static void fa_sha1_prepare(void) { fa_sha1_best = fa_sha1_best_here(); }

static void fa_sha1_blocks(int way, uint32_t state[5], const uint8_t *at, size_t blocks)
{
    if (way)
        fa_sha1_quick(state, at, blocks);
    else
        fa_sha1_plain(state, at, blocks);
}

static void fa_sha1_start(fa_sha1 *hash)
{
    static const uint32_t first[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    memcpy(hash->state, first, sizeof first);
    hash->used = 0;
    hash->bytes = 0;
}

static void fa_sha1_add(int way, fa_sha1 *hash, const uint8_t *at, size_t length)
{
    size_t free_bytes = FA_SHA1_BLOCK - hash->used;
    if (length < free_bytes) {
        memcpy(hash->block + hash->used, at, length);
        hash->used += (uint32_t) length;
        return;
    }
    if (hash->used) {
        memcpy(hash->block + hash->used, at, free_bytes);
        fa_sha1_blocks(way, hash->state, hash->block, 1);
        hash->bytes += FA_SHA1_BLOCK;
        at += free_bytes;
        length -= free_bytes;
    }
    fa_sha1_blocks(way, hash->state, at, length / FA_SHA1_BLOCK);
    hash->bytes += length / FA_SHA1_BLOCK * FA_SHA1_BLOCK;
    hash->used = (uint32_t) (length % FA_SHA1_BLOCK);
    memcpy(hash->block, at + length - hash->used, hash->used);
}

static void fa_sha1_end(int way, fa_sha1 *hash, uint8_t digest[FA_SHA1_DIGEST])
{
    uint64_t bits = (hash->bytes + hash->used) * 8;
    hash->block[hash->used++] = 0x80;
    if (hash->used > FA_SHA1_BLOCK - 8) {
        memset(hash->block + hash->used, 0, FA_SHA1_BLOCK - hash->used);
        fa_sha1_blocks(way, hash->state, hash->block, 1);
        hash->used = 0;
    }
    memset(hash->block + hash->used, 0, FA_SHA1_BLOCK - 8 - hash->used);
    for (int n = 0; n < 8; n++)
        hash->block[FA_SHA1_BLOCK - 1 - n] = (uint8_t) (bits >> 8 * n);
    fa_sha1_blocks(way, hash->state, hash->block, 1);
    for (int n = 0; n < FA_SHA1_DIGEST; n++)
        digest[n] = (uint8_t) (hash->state[n / 4] >> (24 - 8 * (n % 4)));
}

/* The states after the pads of a key. */
typedef struct {
    uint32_t inner[5], outer[5];
} fa_hmac_key;

static void fa_hmac_set_key(int way, fa_hmac_key *key, const uint8_t *secret, size_t length)
{
    uint8_t pad[FA_SHA1_BLOCK] = {0};
    fa_sha1 hash;
    if (length > FA_SHA1_BLOCK) {
        fa_sha1_start(&hash);
        fa_sha1_add(way, &hash, secret, length);
        fa_sha1_end(way, &hash, pad);
    } else {
        memcpy(pad, secret, length);
    }
    for (int n = 0; n < FA_SHA1_BLOCK; n++)
        pad[n] ^= 0x36;
    fa_sha1_start(&hash);
    memcpy(key->inner, hash.state, sizeof key->inner);
    memcpy(key->outer, hash.state, sizeof key->outer);
    fa_sha1_blocks(way, key->inner, pad, 1);
    for (int n = 0; n < FA_SHA1_BLOCK; n++)
        pad[n] ^= 0x36 ^ 0x5c;
    fa_sha1_blocks(way, key->outer, pad, 1);
}

static void fa_hmac_start(const fa_hmac_key *key, fa_sha1 *hash)
{
    memcpy(hash->state, key->inner, sizeof key->inner);
    hash->used = 0;
    hash->bytes = FA_SHA1_BLOCK;
}

static void fa_hmac_end(int way, const fa_hmac_key *key, fa_sha1 *hash, uint8_t digest[FA_SHA1_DIGEST])
{
    uint8_t inner[FA_SHA1_DIGEST];
    fa_sha1_end(way, hash, inner);
    memcpy(hash->state, key->outer, sizeof key->outer);
    memcpy(hash->block, inner, sizeof inner);
    hash->used = FA_SHA1_DIGEST;
    hash->bytes = FA_SHA1_BLOCK;
    fa_sha1_end(way, hash, digest);
}

/* Base64 of a digest: 28 characters, the last one `=`. */
static void fa_digest_text(const uint8_t digest[FA_SHA1_DIGEST], uint8_t text[28])
{
    static const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t padded[FA_SHA1_DIGEST + 1];
    memcpy(padded, digest, FA_SHA1_DIGEST);
    padded[FA_SHA1_DIGEST] = 0;
    for (int n = 0; n < 7; n++) {
        uint32_t bits = (uint32_t) padded[3 * n] << 16 | (uint32_t) padded[3 * n + 1] << 8 | padded[3 * n + 2];
        for (int k = 0; k < 4; k++)
            text[4 * n + k] = (uint8_t) letters[bits >> (18 - 6 * k) & 63];
    }
    text[27] = '=';
}

/* Whether two texts are the same, in a time that does not say where they differ. */
static int fa_same_secret(const uint8_t *one, const uint8_t *other, size_t length)
{
    uint8_t different = 0;
    for (size_t n = 0; n < length; n++)
        different |= (uint8_t) (one[n] ^ other[n]);
    return !different;
}

#endif
