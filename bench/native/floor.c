/* The least that a server can do, as a floor to be measured against: never part of what is measured as ours.
 *
 *   floor append FILE MIB      each turn: read all ready sockets, one pwrite of what came, one send for each socket;
 *                              behind MIB the next file, FILE.1 and so on: new blocks and pages, as any log needs
 *   floor record FILE MIB      the same with batches: of each message a record and an entry of its queue, in FILE.entries
 *   floor pull FILE MIB BYTES PIECES     answers each frame with BYTES of the mapped file, gathered from PIECES places
 *
 * Looks at the length word of a frame and at nothing else; answers say "code":0. One thread, one epoll; prints its port,
 * ends with its standard input. What is pulled was written before.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recording.h"

#define IN_BYTES (1 << 18)
#define STAGING_BYTES (1 << 25)
#define EVENTS 64
#define HEAD "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"00000000\"},"  \
             "\"flag\":1,\"language\":\"CPP\",\"opaque\":1,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}"

typedef struct { int fd, frames, watching_out; unsigned char *rest, *out; size_t rest_bytes, out_at, out_bytes, out_room; } Peer;

static unsigned char in[IN_BYTES + (1 << 23)], *staging, *mapped, answer[512];
static size_t staged, answer_bytes;
static long place, file_bytes;
static int file, epoll, pull_bytes, pieces;

static unsigned char *entries, *entries_end;  /* of the queue, if it is a log of records; those of one turn */
static int64_t entry_count;
static int entry_file;

static void fail(const char *what) { perror(what); exit(1); }

static void open_file(const char *path)
{
    file = open(path, O_RDWR | O_CREAT, 0644);
    if (file < 0) fail(path);
    if (!pieces) return;
    unsigned char *block = calloc(1, 1 << 20);
    for (long at = lseek(file, 0, SEEK_END); at < file_bytes; at += 1 << 20)
        if (pwrite(file, block, 1 << 20, at) < 0) fail("pwrite");
    free(block);
    mapped = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) fail("mmap");
}

static void next_file(const char *path)
{
    static int number;
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, ++number);
    close(file);
    open_file(name);
    place = 0;
}

static void open_entries(const char *path)
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

static void watch(Peer *peer, int out)
{
    struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = peer };
    if (peer->watching_out == out) return;
    epoll_ctl(epoll, peer->watching_out < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, peer->fd, &event);
    peer->watching_out = out;
}

static void leave(Peer *peer) { close(peer->fd); free(peer->rest); free(peer->out); free(peer); }

static int push(Peer *peer)
{
    while (peer->out_at < peer->out_bytes) {
        ssize_t sent = send(peer->fd, peer->out + peer->out_at, peer->out_bytes - peer->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) return -1;
            watch(peer, 1);
            return 0;
        }
        peer->out_at += sent;
    }
    peer->out_at = peer->out_bytes = 0;
    watch(peer, 0);
    return 0;
}

static void append_answer(Peer *peer)
{
    size_t size = answer_bytes + pull_bytes;
    if (peer->out_bytes + size > peer->out_room) {
        peer->out_room = (peer->out_bytes + size) * 2;
        peer->out = realloc(peer->out, peer->out_room);
    }
    memcpy(peer->out + peer->out_bytes, answer, answer_bytes);
    peer->out_bytes += answer_bytes;
    for (int piece = 0; piece < pieces; piece++) {
        size_t bytes = pull_bytes / pieces;
        memcpy(peer->out + peer->out_bytes, mapped + place, bytes);
        peer->out_bytes += bytes;
        place = (place + (pieces > 1 ? 4 * bytes : bytes)) % (file_bytes - pull_bytes);
    }
}

static void stage(const unsigned char *frame, size_t size)
{
    size_t header = 8 + (be32(frame + 4) & 0xFFFFFF);
    if (!entries) {
        memcpy(staging + staged, frame, size);
        staged += size;
    } else if (header < size) {
        unsigned char *to = staging + staged;
        staged += put_records(frame + header, frame + size, to, place + staged, &entries_end, &entry_count) - to;
    }
}

/* All that was staged, behind what was written before. */
static void write_turn(const char *path)
{
    if (place + (long) staged > file_bytes) next_file(path);
    if (pwrite(file, staging, staged, place) < 0) fail("pwrite");
    place += staged;
    size_t bytes = entries_end - entries;
    if (entries && pwrite(entry_file, entries, bytes, entry_count * ENTRY_BYTES - bytes) < 0) fail("pwrite");
    entries_end = entries;
}

/* Every whole frame is staged and counted; what is left waits in `rest`. */
static int take(Peer *peer)
{
    memcpy(in, peer->rest, peer->rest_bytes);
    ssize_t got = recv(peer->fd, in + peer->rest_bytes, IN_BYTES, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN ? 0 : -1;
    size_t available = peer->rest_bytes + got, at = 0;
    while (available - at >= 4) {
        uint32_t size;
        memcpy(&size, in + at, 4);
        size = 4 + ntohl(size);
        if (size > (1 << 23)) return -1;
        if (size > available - at) break;
        if (!pieces) stage(in + at, size);
        peer->frames++;
        at += size;
    }
    peer->rest = realloc(peer->rest, available - at + 1);
    memcpy(peer->rest, in + at, available - at);
    peer->rest_bytes = available - at;
    return 0;
}

int main(int count, char **words)
{
    if (count < 4) return 2;
    file_bytes = atol(words[3]) << 20;
    if (file_bytes < 2 * STAGING_BYTES) return 2;
    if (count > 5) { pull_bytes = atoi(words[4]); pieces = atoi(words[5]); pull_bytes -= pull_bytes % pieces; }
    open_file(words[2]);
    make_answer();
    staging = malloc(STAGING_BYTES);
    if (!strcmp(words[1], "record")) open_entries(words[2]);
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof here;
    int listening = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (bind(listening, (struct sockaddr *) &here, sizeof here) < 0 || listen(listening, 1024) < 0) fail("listen");
    getsockname(listening, (struct sockaddr *) &here, &length);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL }, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event);
    event.data.ptr = &epoll;
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        staged = 0;
        for (int n = 0; n < ready; n++) {
            Peer *peer = events[n].data.ptr;
            if (events[n].data.ptr == &epoll) return 0;
            if (!peer) {
                peer = calloc(1, sizeof *peer);
                peer->fd = accept(listening, NULL, NULL);
                setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                peer->rest = malloc(1);
                peer->watching_out = -1;
                watch(peer, 0);
                events[n].data.ptr = NULL;
            } else if (events[n].events & ~EPOLLOUT && take(peer) < 0) {
                leave(peer);
                events[n].data.ptr = NULL;
            }
        }
        if (staged) write_turn(words[2]);
        for (int n = 0; n < ready; n++) {
            Peer *peer = events[n].data.ptr;
            if (!peer) continue;
            for (; peer->frames; peer->frames--) append_answer(peer);
            if (push(peer) < 0) leave(peer);
        }
    }
}
