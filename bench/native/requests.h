/* Requests made beforehand: a file of them, each behind its size as a big-endian u32. The n-th bears the opaque n + 1.
 * Requests with the same topic and queue ("b", "e") are of one `lane`: its answers tell consecutive queue offsets. */
#ifndef BENCH_REQUESTS_H
#define BENCH_REQUESTS_H

#include "connection.h"
#include "answers.h"

enum { REQUESTS_MAX = 1 << 16, LANES_ROOM = 1 << 17, HEADER_MAX = 1 << 16 };

typedef struct {
    const unsigned char *at;
    size_t size, body;                        /* where the body begins */
    int lane;                                 /* -1: no send */
} Request;

typedef struct {
    const unsigned char *topic, *queue;
    size_t topic_bytes, queue_bytes;
    int64_t count, sum, least, most;          /* of the queue offsets that were told */
} Lane;

static Request requests[REQUESTS_MAX];
static Lane lanes[LANES_ROOM];
static int request_count;

/* The text behind `name` up to the next quote. */
static inline const unsigned char *text_of(const unsigned char *header, size_t bytes, const char *name, size_t *length)
{
    const unsigned char *at = memmem(header, bytes, name, strlen(name));
    if (!at) return NULL;
    at += strlen(name);
    const unsigned char *end = memchr(at, '"', header + bytes - at);
    *length = end ? (size_t) (end - at) : 0;
    return end ? at : NULL;
}

static inline int lane_of(const unsigned char *header, size_t bytes)
{
    size_t topic_bytes, queue_bytes;
    const unsigned char *topic = text_of(header, bytes, "\"b\":\"", &topic_bytes);
    const unsigned char *queue = text_of(header, bytes, "\"e\":\"", &queue_bytes);
    if (!topic || !queue) return -1;
    uint32_t place = 2166136261u;
    for (size_t n = 0; n < topic_bytes; n++) place = (place ^ topic[n]) * 16777619u;
    for (size_t n = 0; n < queue_bytes; n++) place = (place ^ queue[n]) * 16777619u;
    for (place %= LANES_ROOM; lanes[place].topic; place = (place + 1) % LANES_ROOM)
        if (lanes[place].topic_bytes == topic_bytes && lanes[place].queue_bytes == queue_bytes
            && !memcmp(lanes[place].topic, topic, topic_bytes) && !memcmp(lanes[place].queue, queue, queue_bytes))
            return place;
    lanes[place] = (Lane) { .topic = topic, .queue = queue, .topic_bytes = topic_bytes, .queue_bytes = queue_bytes };
    return place;
}

static inline void load_requests(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file), at = 0;
    unsigned char *data = malloc(size + 1);
    rewind(file);
    if (!data || fread(data, 1, size, file) != size) fail(path);
    fclose(file);
    for (; at + 4 <= size; request_count++) {
        size_t length = be32(data + at);
        if (request_count == REQUESTS_MAX) give_up("more than %d requests in %s", REQUESTS_MAX, path);
        if (length < 8 || length > size - at - 4) give_up("request %d of %s is cut", request_count, path);
        Request *request = &requests[request_count];
        *request = (Request) { .at = data + at + 4, .size = length, .lane = -1 };
        if (request->at[0] != '*') {
            size_t header = be32(request->at + 4) & 0xFFFFFF;
            if (8 + header > length) give_up("request %d of %s is cut", request_count, path);
            request->body = 8 + header;
            request->lane = lane_of(request->at + 8, header);
        }
        at += 4 + length;
    }
    if (!request_count) give_up("no request in %s", path);
}

static inline void note_offset(int lane, int64_t queue_offset)
{
    Lane *of = &lanes[lane];
    if (!of->count || queue_offset < of->least) of->least = queue_offset;
    if (!of->count || queue_offset > of->most) of->most = queue_offset;
    of->count++;
    of->sum += queue_offset;
}

/* Lanes whose offsets have a gap or one twice, as far as ends and sum can tell. `step`: messages of one request. */
static inline long torn_lanes(int64_t step)
{
    long torn = 0;
    for (int n = 0; n < LANES_ROOM; n++) {
        const Lane *of = &lanes[n];
        if (of->count && (of->most - of->least != (of->count - 1) * step || of->sum * 2 != (of->least + of->most) * of->count)) torn++;
    }
    return torn;
}

#endif
