/* HMAC-SHA1 (RFC 2104) with the SHA-1 of libcrypto. The states after the key's two pads are computed once for each key.
 *
 * SHA1_Update is deprecated for applications since OpenSSL 3.0, but a request of 250 bytes takes 0.30 µs, of HMAC_Init_ex
 * and EVP_MAC, which allocate for each, 0.40 and 0.44. Load with `openssl_find` first; then any thread. */
#ifndef FIREARROW_HMAC_SHA1_H
#define FIREARROW_HMAC_SHA1_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/openssl.h"

#define FA_SHA1_BLOCK 64
#define FA_SHA1_DIGEST 20

typedef struct { uint32_t words[32]; } fa_sha1;        /* SHA_CTX of openssl/sha.h has 24 in every version */

typedef struct { fa_sha1 inner, outer; } fa_hmac_key;

typedef struct {
    int (*start)(fa_sha1 *hash);
    int (*add)(fa_sha1 *hash, const void *at, size_t length);
    int (*end)(uint8_t *digest, fa_sha1 *hash);
    int (*encode)(uint8_t *base64, const uint8_t *from, int length);
    int (*differ)(const void *one, const void *other, size_t length);   /* in a time that does not tell where */
} fa_libcrypto;

static inline int fa_libcrypto_load(const char *path, fa_libcrypto *found)
{
    static const OpenSslFunction functions[] = {
        { offsetof(fa_libcrypto, start), "SHA1_Init" }, { offsetof(fa_libcrypto, add), "SHA1_Update" },
        { offsetof(fa_libcrypto, end), "SHA1_Final" }, { offsetof(fa_libcrypto, encode), "EVP_EncodeBlock" },
        { offsetof(fa_libcrypto, differ), "CRYPTO_memcmp" },
    };
    return openssl_find(path, functions, sizeof functions / sizeof *functions, found);
}

static inline void fa_hmac_set_key(const fa_libcrypto *by, fa_hmac_key *key, const uint8_t *secret, size_t length)
{
    uint8_t pad[FA_SHA1_BLOCK] = {0};
    if (length > FA_SHA1_BLOCK) {
        by->start(&key->inner);
        by->add(&key->inner, secret, length);
        by->end(pad, &key->inner);
    } else {
        memcpy(pad, secret, length);
    }
    for (int n = 0; n < FA_SHA1_BLOCK; n++)
        pad[n] ^= 0x36;
    by->start(&key->inner);
    by->add(&key->inner, pad, sizeof pad);
    for (int n = 0; n < FA_SHA1_BLOCK; n++)
        pad[n] ^= 0x36 ^ 0x5c;
    by->start(&key->outer);
    by->add(&key->outer, pad, sizeof pad);
}

/* Base64 of the digest: 28 characters and a zero. `hash` began as the key's `inner`. */
static inline void fa_hmac_end(const fa_libcrypto *by, const fa_hmac_key *key, fa_sha1 *hash, uint8_t base64[29])
{
    uint8_t digest[FA_SHA1_DIGEST];
    by->end(digest, hash);
    *hash = key->outer;
    by->add(hash, digest, sizeof digest);
    by->end(digest, hash);
    by->encode(base64, digest, sizeof digest);
}

#endif
