/* A file of prepared requests, each preceded by its size as a big-endian u32. The n-th, from 1, has the opaque OPAQUE_BASE + n.
 * Requests with the same topic and queue ("b", "e") share a QueueSends: their responses must contain consecutive queue
 * offsets. */
#ifndef BENCH_REQUESTS_H
#define BENCH_REQUESTS_H

#include "connection.h"
#include "answers.h"

/* Ten digits, as the numbers of a client that runs for a day. As bench/frames.py has it. */
enum { OPAQUE_BASE = 2000000000 };

enum { REQUESTS_MAX = 1 << 16, QUEUES_MAX = 1 << 17, HEADER_MAX = 1 << 16 };

typedef struct {
    const unsigned char *at;
    size_t size, body;                        /* body: its position */
    int queue_sends_id;                       /* index in `queue_sends`; -1: not a send */
} Request;

typedef struct {
    const unsigned char *topic, *queue;
    size_t topic_bytes, queue_bytes;
    int64_t count, sum, least, most;          /* of the queue offsets in the responses */
} QueueSends;

static Request requests[REQUESTS_MAX];
static QueueSends queue_sends[QUEUES_MAX];
static int request_count;

/* The text after `name` up to the next quote. */
static inline const unsigned char *text_of(const unsigned char *header, size_t bytes, const char *name, size_t *length)
{
    const unsigned char *at = memmem(header, bytes, name, strlen(name));
    if (!at) return NULL;
    at += strlen(name);
    const unsigned char *end = memchr(at, '"', header + bytes - at);
    *length = end ? (size_t) (end - at) : 0;
    return end ? at : NULL;
}

static inline int queue_sends_of(const unsigned char *header, size_t bytes)
{
    size_t topic_bytes, queue_bytes;
    const unsigned char *topic = text_of(header, bytes, "\"b\":\"", &topic_bytes);
    const unsigned char *queue = text_of(header, bytes, "\"e\":\"", &queue_bytes);
    if (!topic || !queue) return -1;
    uint32_t slot = 2166136261u;
    for (size_t n = 0; n < topic_bytes; n++) slot = (slot ^ topic[n]) * 16777619u;
    for (size_t n = 0; n < queue_bytes; n++) slot = (slot ^ queue[n]) * 16777619u;
    for (slot %= QUEUES_MAX; queue_sends[slot].topic; slot = (slot + 1) % QUEUES_MAX)
        if (queue_sends[slot].topic_bytes == topic_bytes && queue_sends[slot].queue_bytes == queue_bytes
            && !memcmp(queue_sends[slot].topic, topic, topic_bytes) && !memcmp(queue_sends[slot].queue, queue, queue_bytes))
            return slot;
    queue_sends[slot] = (QueueSends) { .topic = topic, .queue = queue, .topic_bytes = topic_bytes, .queue_bytes = queue_bytes };
    return slot;
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
        if (request_count == REQUESTS_MAX) die("more than %d requests in %s", REQUESTS_MAX, path);
        if (length < 8 || length > size - at - 4) die("request %d of %s is incomplete", request_count, path);
        Request *request = &requests[request_count];
        *request = (Request) { .at = data + at + 4, .size = length, .queue_sends_id = -1 };
        if (request->at[0] != '*') {
            size_t header = be32(request->at + 4) & 0xFFFFFF;
            if (8 + header > length) die("request %d of %s is incomplete", request_count, path);
            request->body = 8 + header;
            request->queue_sends_id = queue_sends_of(request->at + 8, header);
        }
        at += 4 + length;
    }
    if (!request_count) die("%s contains no request", path);
}

static inline void note_offset(int queue_sends_id, int64_t queue_offset)
{
    QueueSends *of = &queue_sends[queue_sends_id];
    if (!of->count || queue_offset < of->least) of->least = queue_offset;
    if (!of->count || queue_offset > of->most) of->most = queue_offset;
    of->count++;
    of->sum += queue_offset;
}

/* The number of queues whose offsets have a gap or a duplicate, judged by ends and sum. `step`: messages per request.
 * */
static inline long torn_queues(int64_t step)
{
    long torn = 0;
    for (int n = 0; n < QUEUES_MAX; n++) {
        const QueueSends *of = &queue_sends[n];
        if (of->count && (of->most - of->least != (of->count - 1) * step || of->sum * 2 != (of->least + of->most) * of->count)) torn++;
    }
    return torn;
}

#endif
