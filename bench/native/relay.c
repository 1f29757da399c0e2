/* A minimal server between producers and long-polling consumers of one topic: never part of what is measured as ours.
 *
 *   relay FILE GIB       for each send (310): a record with the CRC of its body, without properties, and a queue entry in
 *                        memory; the records of a pass are one pwrite; pulls (11) wait for their queue and get at most
 *                        32 records of the mapped file; any other frame is answered with success and resets the server:
 *                        it creates the topic of a load
 *
 * After a reset it uses the next file, FILE.1 and so on: new blocks and pages, as any log needs. It exits if a load
 * does not fit into one file. No keys, tags, statistics, committed offsets, limits, timeouts or flushes (serving.h).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

#include "recording.h"
#include "serving.h"

enum { QUEUES = 16, CONSUMERS = 64, FOUND_MAX = 32, STAGING_BYTES = 1 << 25, ANSWER_MAX = 512, ENTRIES_MAX = 1 << 23 };

typedef struct { int64_t position; uint32_t size; } Entry;
typedef struct { Peer *peer; int queue, opaque; int64_t offset; } Pull;

static const char *path;
static unsigned char *staging, *mapped;
static size_t staged, file_bytes, position;
static int file = -1;
static Entry *queues[QUEUES];
static int64_t ends[QUEUES];
static Pull pulls[CONSUMERS];                 /* that are held */
static int pull_count;
static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":"), send_queue = MEMBER("\"e\":\"");
static Member pull_queue = MEMBER("\"queueId\":\""), pull_offset = MEMBER("\"queueOffset\":\"");

static void reset(void)
{
    static int number;
    char name[4096];
    if (mapped) munmap(mapped, file_bytes);
    if (file >= 0) close(file);
    snprintf(name, sizeof name, "%s.%d", path, number++);
    file = open(name, O_RDWR | O_CREAT, 0644);
    if (file < 0 || ftruncate(file, file_bytes) < 0) fail(name);
    mapped = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    position = staged = 0;
    memset(ends, 0, sizeof ends);
}

/* Appends a response with this header; returns the space for its body of `body_bytes`. */
static unsigned char *put_response(Peer *peer, const char *header, size_t header_bytes, size_t body_bytes)
{
    unsigned char *to = reserve_out(peer, 8 + header_bytes + body_bytes);
    put32(put32(to, 4 + header_bytes + body_bytes), header_bytes);
    memcpy(to + 8, header, header_bytes);
    return to + 8 + header_bytes;
}

/* Texts up to `text`'s end and numbers, append_number: snprintf costs more than all the rest. */
static char *append_number(char *to, const char *text, int64_t number)
{
    char digits[20];
    int count = 0;
    to = stpcpy(to, text);
    do digits[count++] = '0' + number % 10; while (number /= 10);
    while (count) *to++ = digits[--count];
    return to;
}

static void take_send(Peer *peer, const unsigned char *header, size_t header_bytes, const unsigned char *body, size_t body_bytes)
{
    char text[ANSWER_MAX], *end = text;
    int queue = number_of(&send_queue, header, header_bytes) & (QUEUES - 1);
    size_t size = FIXED_BYTES + body_bytes + sizeof topic_name - 1;
    if (ends[queue] == ENTRIES_MAX || position + staged + size > file_bytes) exit(3);
    if (!queues[queue]) queues[queue] = malloc(ENTRIES_MAX * sizeof(Entry));
    queues[queue][ends[queue]] = (Entry) { position + staged, size };
    put_record(staging + staged, size, body, body_bytes, NULL, 0, ends[queue], position + staged);
    staged += size;
    end = append_number(end, "{\"code\":0,\"extFields\":{\"queueId\":\"", queue);
    end = append_number(end, "\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"", ends[queue]++);
    end = append_number(end, "\"},\"flag\":1,\"language\":\"CPP\",\"opaque\":", number_of(&opaque, header, header_bytes));
    end = stpcpy(end, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}");
    put_response(peer, text, end - text, 0);
}

static void take_frame(Peer *peer, const unsigned char *frame, size_t size)
{
    size_t header_bytes = be32(frame + 4) & 0xFFFFFF;
    const unsigned char *header = frame + 8;
    if (8 + header_bytes > size) return;
    int64_t request_code = number_of(&code, header, header_bytes), number = number_of(&opaque, header, header_bytes);
    if (request_code == 310) {
        take_send(peer, header, header_bytes, header + header_bytes, size - 8 - header_bytes);
    } else if (request_code == 11 && pull_count < CONSUMERS) {
        int queue = number_of(&pull_queue, header, header_bytes) & (QUEUES - 1);
        pulls[pull_count++] = (Pull) { peer, queue, number, number_of(&pull_offset, header, header_bytes) };
    } else {
        char text[ANSWER_MAX], *end = append_number(text, "{\"code\":0,\"flag\":1,\"language\":\"CPP\",\"opaque\":", number);
        end = stpcpy(end, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}");
        put_response(peer, text, end - text, 0);
        reset();
    }
}

static void answer_pull(const Pull *pull)
{
    const Entry *first = &queues[pull->queue][pull->offset];
    char text[ANSWER_MAX], *end = text;
    int64_t left = ends[pull->queue] - pull->offset;
    int count = left < FOUND_MAX ? left : FOUND_MAX;
    size_t bytes = 0;
    for (int n = 0; n < count; n++) bytes += first[n].size;
    end = append_number(end, "{\"code\":0,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"", pull->offset + count);
    end = append_number(end, "\",\"minOffset\":\"0\",\"maxOffset\":\"", ends[pull->queue]);
    end = append_number(end, "\"},\"flag\":1,\"language\":\"CPP\",\"opaque\":", pull->opaque);
    end = stpcpy(end, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}");
    unsigned char *to = put_response(pull->peer, text, end - text, bytes);
    for (int n = 0; n < count; n++) {
        memcpy(to, mapped + first[n].position, first[n].size);
        to += first[n].size;
    }
}

/* Writes the records of the pass, then answers the pulls that waited for them. */
static void end_pass(void)
{
    int kept = 0;
    if (staged && pwrite(file, staging, staged, position) < 0) fail("pwrite");
    position += staged;
    staged = 0;
    for (int n = 0; n < pull_count; n++) {
        if (ends[pulls[n].queue] <= pulls[n].offset) {
            pulls[kept++] = pulls[n];
        } else {
            answer_pull(&pulls[n]);
            push(pulls[n].peer);                  /* a closed one is removed in the next pass */
        }
    }
    pull_count = kept;
}

static void answer_frames(Peer *peer) { (void) peer; }

static void forget(Peer *peer)
{
    int kept = 0;
    for (int n = 0; n < pull_count; n++)
        if (pulls[n].peer != peer) pulls[kept++] = pulls[n];
    pull_count = kept;
}

int main(int count, char **words)
{
    if (count < 3) return 2;
    path = words[1];
    file_bytes = (size_t) atol(words[2]) << 30;
    staging = malloc(STAGING_BYTES);
    fa_crc_prepare();
    reset();
    serve();
    return 0;
}
