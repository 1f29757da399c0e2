/* A minimal server, the floor for other servers: never part of what is measured as ours.
 *
 *   floor append FILE MIB      each pass: read all ready sockets, one pwrite of their data, one send for each socket;
 *                              after MIB the next file, FILE.1 and so on: new blocks and pages, as any log needs
 *   floor synced FILE MIB      the same, and the data of a pass is on the disk before its responses are sent
 *   floor record FILE MIB      as append, for batches: for each message a record, and a queue entry in FILE.entries
 *   floor pull FILE MIB BYTES CHUNKS     answers each frame with BYTES of the mapped file, copied from CHUNKS positions
 *
 * Reads only the length words of a frame; responses contain "code":0 (serving.h). The data for pulls is written
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
static long position, file_bytes;
static const char *path;
static int file, synced, pull_bytes, chunks;

static unsigned char *entries, *entries_end;  /* `record` only: the queue entries of one pass */
static int64_t entry_count;
static int entry_file;

static void open_file(const char *name)
{
    file = open(name, O_RDWR | O_CREAT, 0644);
    if (file < 0) fail(name);
    if (!chunks) return;
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
    position = 0;
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
    if (chunks) return;
    if (!entries) {
        memcpy(staging + staged, frame, size);
        staged += size;
    } else if (header < size) {
        unsigned char *to = staging + staged;
        staged += put_records(frame + header, frame + size, to, position + staged, &entries_end, &entry_count) - to;
    }
}

/* Appends the staged data to the file. */
static void end_pass(void)
{
    if (!staged) return;
    if (position + (long) staged > file_bytes) next_file();
    if (pwrite(file, staging, staged, position) < 0) fail("pwrite");
    if (synced && fdatasync(file) < 0) fail("fdatasync");
    position += staged;
    staged = 0;
    size_t bytes = entries_end - entries;
    if (entries && pwrite(entry_file, entries, bytes, entry_count * ENTRY_BYTES - bytes) < 0) fail("pwrite");
    entries_end = entries;
}

static void answer_frames(Peer *peer)
{
    for (int n = 0; n < peer->frames; n++) {
        unsigned char *to = reserve_out(peer, answer_bytes + pull_bytes);
        memcpy(to, answer, answer_bytes);
        to += answer_bytes;
        for (int chunk = 0; chunk < chunks; chunk++) {
            size_t bytes = pull_bytes / chunks;
            memcpy(to, mapped + position, bytes);
            to += bytes;
            position = (position + (chunks > 1 ? 4 * bytes : bytes)) % (file_bytes - pull_bytes);
        }
    }
}

static void forget(Peer *peer) { (void) peer; }

int main(int count, char **words)
{
    if (count < 4) return 2;
    path = words[2];
    file_bytes = atol(words[3]) << 20;
    if (file_bytes < 2 * STAGING_BYTES) return 2;
    if (count > 5) { pull_bytes = atoi(words[4]); chunks = atoi(words[5]); pull_bytes -= pull_bytes % chunks; }
    open_file(path);
    make_answer();
    staging = malloc(STAGING_BYTES);
    synced = !strcmp(words[1], "synced");
    if (!strcmp(words[1], "record")) open_entries();
    serve();
    return 0;
}
