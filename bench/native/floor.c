/* The least that a server can do, as a floor to be measured against: never part of what is measured as ours.
 *
 *   floor append FILE MIB      each turn: read all ready sockets, one pwrite of what came, one send for each socket;
 *                              behind MIB the next file, FILE.1 and so on: new blocks and pages, as any log needs
 *   floor synced FILE MIB      the same, and all of a turn is on the disk before its answers go
 *   floor record FILE MIB      as append, with batches: of each message a record and an entry of its queue, in FILE.entries
 *   floor pull FILE MIB BYTES PIECES     answers each frame with BYTES of the mapped file, gathered from PIECES places
 *
 * Looks at the length word of a frame and at nothing else; answers say "code":0 (serving.h). What is pulled was written
 * before.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

#include "recording.h"
#include "serving.h"

#define STAGING_BYTES (1 << 25)
#define HEAD "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"00000000\"},"  \
             "\"flag\":1,\"language\":\"CPP\",\"opaque\":1,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}"

static unsigned char *staging, *mapped, answer[512];
static size_t staged, answer_bytes;
static long place, file_bytes;
static const char *path;
static int file, synced, pull_bytes, pieces;

static unsigned char *entries, *entries_end;  /* of the queue, if it is a log of records; those of one turn */
static int64_t entry_count;
static int entry_file;

static void open_file(const char *name)
{
    file = open(name, O_RDWR | O_CREAT, 0644);
    if (file < 0) fail(name);
    if (!pieces) return;
    unsigned char *block = calloc(1, 1 << 20);
    for (long at = lseek(file, 0, SEEK_END); at < file_bytes; at += 1 << 20)
        if (pwrite(file, block, 1 << 20, at) < 0) fail("pwrite");
    free(block);
    mapped = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) fail("mmap");
}

static void next_file(void)
{
    static int number;
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, ++number);
    close(file);
    open_file(name);
    place = 0;
}

static void open_entries(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.entries", path);
    entry_file = open(name, O_RDWR | O_CREAT, 0644);
    if (entry_file < 0) fail(name);
    entries = entries_end = malloc(STAGING_BYTES);
    fa_crc_prepare();
}

static void make_answer(void)
{
    uint32_t header = sizeof HEAD - 1, whole = htonl(4 + header + pull_bytes), word = htonl(header);
    memcpy(answer, &whole, 4);
    memcpy(answer + 4, &word, 4);
    memcpy(answer + 8, HEAD, header);
    answer_bytes = 8 + header;
}

static void take_frame(Peer *peer, const unsigned char *frame, size_t size)
{
    size_t header = 8 + (be32(frame + 4) & 0xFFFFFF);
    (void) peer;
    if (pieces) return;
    if (!entries) {
        memcpy(staging + staged, frame, size);
        staged += size;
    } else if (header < size) {
        unsigned char *to = staging + staged;
        staged += put_records(frame + header, frame + size, to, place + staged, &entries_end, &entry_count) - to;
    }
}

/* All that was staged, behind what was written before. */
static void end_turn(void)
{
    if (!staged) return;
    if (place + (long) staged > file_bytes) next_file();
    if (pwrite(file, staging, staged, place) < 0) fail("pwrite");
    if (synced && fdatasync(file) < 0) fail("fdatasync");
    place += staged;
    staged = 0;
    size_t bytes = entries_end - entries;
    if (entries && pwrite(entry_file, entries, bytes, entry_count * ENTRY_BYTES - bytes) < 0) fail("pwrite");
    entries_end = entries;
}

static void answer_frames(Peer *peer)
{
    for (int n = 0; n < peer->frames; n++) {
        unsigned char *to = room_of(peer, answer_bytes + pull_bytes);
        memcpy(to, answer, answer_bytes);
        to += answer_bytes;
        for (int piece = 0; piece < pieces; piece++) {
            size_t bytes = pull_bytes / pieces;
            memcpy(to, mapped + place, bytes);
            to += bytes;
            place = (place + (pieces > 1 ? 4 * bytes : bytes)) % (file_bytes - pull_bytes);
        }
    }
}

static void gone(Peer *peer) { (void) peer; }

int main(int count, char **words)
{
    if (count < 4) return 2;
    path = words[2];
    file_bytes = atol(words[3]) << 20;
    if (file_bytes < 2 * STAGING_BYTES) return 2;
    if (count > 5) { pull_bytes = atoi(words[4]); pieces = atoi(words[5]); pull_bytes -= pull_bytes % pieces; }
    open_file(path);
    make_answer();
    staging = malloc(STAGING_BYTES);
    synced = !strcmp(words[1], "synced");
    if (!strcmp(words[1], "record")) open_entries();
    serve();
    return 0;
}
