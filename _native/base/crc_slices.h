/* A reflected CRC of 32 bits by slices of eight bytes, for any polynomial: what crc32.h and crc32c.h have in common. */
#ifndef FIREARROW_CRC_SLICES_H
#define FIREARROW_CRC_SLICES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void fa_crc_fill_table(uint32_t table[8][256], uint32_t polynomial)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        table[0][n] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t n = 0; n < 256; n++)
            table[slice][n] = table[slice - 1][n] >> 8 ^ table[0][table[slice - 1][n] & 255];
}

static inline uint32_t fa_crc_by_table(uint32_t table[8][256], uint32_t crc, const uint8_t *at, size_t length)
{
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255] ^ table[4][word >> 24 & 255]
            ^ table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255] ^ table[1][word >> 48 & 255] ^ table[0][word >> 56];
        at += 8;
        length -= 8;
    }
    while (length--)
        crc = crc >> 8 ^ table[0][(crc ^ *at++) & 255];
    return crc;
}

#endif
