/* What the JSON header of an answer says, read in place. A member is looked for where the last answer had it, then
 * everywhere: answers of one server look alike, and the load must cost less than what it loads. */
#ifndef BENCH_ANSWERS_H
#define BENCH_ANSWERS_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *name;
    size_t length, seen;                      /* of the name · where the last one was */
} Member;

#define MEMBER(name) { name, sizeof(name) - 1, 0 }

typedef struct {
    const unsigned char *header, *body;
    size_t header_bytes, body_bytes;
} Answer;

static inline uint32_t be32(const unsigned char *at) { uint32_t raw; memcpy(&raw, at, 4); return ntohl(raw); }
static inline int64_t be64(const unsigned char *at) { return (int64_t) ((uint64_t) be32(at) << 32 | be32(at + 4)); }

/* Bytes of the whole frame at `at`; 0 while it is cut, -1 when its lengths cannot be true. */
static inline long take_answer(const unsigned char *at, size_t available, size_t bytes_max, Answer *answer)
{
    if (available < 8) return 0;
    size_t whole = be32(at), header = be32(at + 4) & 0xFFFFFF;
    if (whole > bytes_max || header + 4 > whole) return -1;
    if (4 + whole > available) return 0;
    answer->header = at + 8;
    answer->header_bytes = header;
    answer->body = at + 8 + header;
    answer->body_bytes = whole - 4 - header;
    return (long) (4 + whole);
}

/* The number behind `"name":` or `"name":"`; -1 without one. */
static inline int64_t number_of(Member *member, const unsigned char *header, size_t bytes)
{
    size_t length = member->length, at = member->seen;
    if (at + length > bytes || memcmp(header + at, member->name, length)) {
        const unsigned char *found = memmem(header, bytes, member->name, length);
        if (!found) return -1;
        at = member->seen = found - header;
    }
    at += length;
    int64_t number = 0;
    size_t digits = 0;
    for (; at < bytes && digits < 18 && header[at] >= '0' && header[at] <= '9'; at++, digits++)
        number = number * 10 + (header[at] - '0');
    return digits ? number : -1;
}

#endif
