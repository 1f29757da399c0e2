/* Reads the JSON header of a response in place. A member is searched first where the last response had it, then
 * everywhere: responses of one server look the same, and the load generator must cost less than the server. */
#ifndef BENCH_ANSWERS_H
#define BENCH_ANSWERS_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *name;
    size_t length, last_at;                   /* of the name · its position in the last header */
} Member;

#define MEMBER(name) { name, sizeof(name) - 1, 0 }

typedef struct {
    const unsigned char *header, *body;
    size_t header_bytes, body_bytes;
} Answer;

static inline uint32_t be32(const unsigned char *at) { uint32_t raw; memcpy(&raw, at, 4); return ntohl(raw); }
static inline int64_t be64(const unsigned char *at) { return (int64_t) ((uint64_t) be32(at) << 32 | be32(at + 4)); }

/* Size of the frame at `at` in bytes; 0: it is incomplete; -1: its lengths are invalid. */
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

/* The number after `"name":` or `"name":"`; -1: there is none. */
static inline int64_t number_of(Member *member, const unsigned char *header, size_t bytes)
{
    size_t length = member->length, at = member->last_at;
    if (at + length > bytes || memcmp(header + at, member->name, length)) {
        const unsigned char *found = memmem(header, bytes, member->name, length);
        if (!found) return -1;
        at = member->last_at = found - header;
    }
    at += length;
    int64_t number = 0;
    size_t digits = 0;
    for (; at < bytes && digits < 18 && header[at] >= '0' && header[at] <= '9'; at++, digits++)
        number = number * 10 + (header[at] - '0');
    return digits ? number : -1;
}

#endif
