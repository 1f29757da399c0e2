/* The minimum work of a log with consumers, for the items of a batch (code 320): for each message a record with the
 * CRC of its body, and a queue entry with the hash of its tag. All messages go to one topic and queue; there is no
 * key index, no statistics, no offset in responses. Call `fa_crc_prepare` first. */
#ifndef BENCH_RECORDING_H
#define BENCH_RECORDING_H

#include "answers.h"
#include "base/crc32.h"

enum { ITEM_HEAD = 20, ENTRY_BYTES = 20, FIXED_BYTES = 91, TAG_BYTES = 5 };
static const unsigned char tag_name[] = "TAGS\1", topic_name[] = "bench";

static inline unsigned char *put32(unsigned char *to, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(to, &value, 4);
    return to + 4;
}

static inline unsigned char *put64(unsigned char *to, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(to, &value, 8);
    return to + 8;
}

/* Java's String.hashCode of the tag; 0: there is none. */
static inline uint32_t tag_hash(const unsigned char *properties, size_t bytes)
{
    const unsigned char *at = memmem(properties, bytes, tag_name, TAG_BYTES), *end = properties + bytes;
    uint32_t hash = 0;
    if (at)
        for (at += TAG_BYTES; at < end && *at != 2; at++) hash = 31 * hash + *at;
    return hash;
}

static inline unsigned char *put_record(
    unsigned char *to, uint32_t size, const unsigned char *body, uint32_t body_bytes, const unsigned char *properties,
    uint32_t properties_bytes, int64_t queue_offset, int64_t physical)
{
    size_t topic_bytes = sizeof topic_name - 1;
    to = put32(put32(to, size), 0xDAA320A7);
    to = put32(put32(put32(to, fa_crc32(body, body_bytes) & 0x7FFFFFFF), 0), 0);
    to = put32(put64(put64(to, queue_offset), physical), 0);
    for (int host = 0; host < 2; host++) to = put64(put64(to, 1700000000000), 0x7F00000100002A9F);
    to = put32(put64(put32(to, 0), 0), body_bytes);
    memcpy(to, body, body_bytes);
    to += body_bytes;
    *to++ = topic_bytes;
    memcpy(to, topic_name, topic_bytes);
    to += topic_bytes;
    *to++ = properties_bytes >> 8;
    *to++ = properties_bytes;
    memcpy(to, properties, properties_bytes);
    return to + properties_bytes;
}

/* Writes the records of the items between `at` and `end`; their end. Advances `entries` and `number` for each item.
 * */
static inline unsigned char *put_records(
    const unsigned char *at, const unsigned char *end, unsigned char *to, int64_t physical, unsigned char **entries,
    int64_t *number)
{
    unsigned char *start = to;
    while (end - at >= ITEM_HEAD + 2) {
        uint32_t body_bytes = be32(at + 16);
        if (body_bytes > end - at - ITEM_HEAD - 2) break;
        const unsigned char *body = at + ITEM_HEAD, *properties = body + body_bytes + 2;
        uint32_t properties_bytes = properties[-2] << 8 | properties[-1];
        if (properties_bytes > end - properties) break;
        uint32_t size = FIXED_BYTES + body_bytes + sizeof topic_name - 1 + properties_bytes;
        int64_t record_offset = physical + (to - start);
        to = put_record(to, size, body, body_bytes, properties, properties_bytes, *number, record_offset);
        *entries = put64(put32(put64(*entries, record_offset), size), tag_hash(properties, properties_bytes));
        ++*number;
        at = properties + properties_bytes;
    }
    return to;
}

#endif
