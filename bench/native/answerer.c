/* A server that only answers: a name server and a broker at which every send succeeds at once.
 *
 * Knows only JSON headers. Answers 105 with a route to itself, 310 and 320 like a broker that stored the message, 34
 * and all others with success. `answerer echo` sends back what it receives: a bare ping. One thread, one epoll;
 * prints its port, exits when its standard input ends. Never part of what is measured as ours. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_BYTES (1 << 24)
#define OUT_BYTES (1 << 24)
#define PEERS 64

typedef struct { int fd; size_t in_size, out_size, out_sent; char *in, *out; } Peer;

static int port, echo;
static long long queue_offset;

static uint32_t be32(const char *at) { uint32_t raw; memcpy(&raw, at, 4); return ntohl(raw); }

static long number_after(const char *at, const char *end, const char *name) {
    const char *found = memmem(at, end - at, name, strlen(name));
    return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

static void answer(Peer *peer, const char *header, const char *end) {
    char ext[256] = "{}", body[512] = "", text[512];
    long code = number_after(header, end, "\"code\":");
    if (code == 310 || code == 320)
        snprintf(ext, sizeof ext, "{\"queueId\":\"0\",\"msgId\":\"7F00000100002A9F%016llX\",\"TRACE_ON\":\"true\","
                 "\"MSG_REGION\":\"DefaultRegion\",\"queueOffset\":\"%lld\"}", queue_offset, queue_offset);
    queue_offset++;
    if (code == 105)
        snprintf(body, sizeof body, "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:%d\"},\"brokerName\":\"broker-a\","
                 "\"cluster\":\"DefaultCluster\"}],\"filterServerTable\":{},\"queueDatas\":[{\"brokerName\":\"broker-a\","
                 "\"perm\":6,\"readQueueNums\":1,\"topicSysFlag\":0,\"writeQueueNums\":1}]}", port);
    int header_bytes = snprintf(text, sizeof text, "{\"code\":0,\"extFields\":%s,\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,"
                                "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}", ext, number_after(header, end, "\"opaque\":"));
    uint32_t words[2] = {htonl(4 + header_bytes + (int)strlen(body)), htonl(header_bytes)};
    if (peer->out_size + 8 + header_bytes + strlen(body) > OUT_BYTES) exit(3);
    memcpy(peer->out + peer->out_size, words, 8);
    memcpy(peer->out + peer->out_size + 8, text, header_bytes);
    memcpy(peer->out + peer->out_size + 8 + header_bytes, body, strlen(body));
    peer->out_size += 8 + header_bytes + strlen(body);
}

static void take_frames(Peer *peer) {
    size_t at = 0;
    while (peer->in_size - at >= 8) {
        uint32_t size = be32(peer->in + at), header_bytes = be32(peer->in + at + 4) & 0xFFFFFF;
        if (size > IN_BYTES - 4 || header_bytes + 4 > size) exit(2);
        if (peer->in_size - at < size + 4) break;
        const char *header = peer->in + at + 8;
        if (echo) {
            if (peer->out_size + size + 4 > OUT_BYTES) exit(3);
            memcpy(peer->out + peer->out_size, peer->in + at, size + 4);
            peer->out_size += size + 4;
        } else if (!(number_after(header, header + header_bytes, "\"flag\":") & 2)) {
            answer(peer, header, header + header_bytes);
        }
        at += size + 4;
    }
    memmove(peer->in, peer->in + at, peer->in_size - at);
    peer->in_size -= at;
}

/* 0: the peer has disconnected. */
static int serve(Peer *peer) {
    ssize_t got = recv(peer->fd, peer->in + peer->in_size, IN_BYTES - peer->in_size, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return 0;
    if (got > 0) peer->in_size += got;
    take_frames(peer);
    while (peer->out_sent < peer->out_size) {
        ssize_t sent = send(peer->fd, peer->out + peer->out_sent, peer->out_size - peer->out_sent, MSG_NOSIGNAL);
        if (sent < 0) return 0;
        peer->out_sent += sent;
    }
    peer->out_sent = peer->out_size = 0;
    return 1;
}

int main(int count, char **words) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t here_bytes = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), on = 1;
    static Peer peers[PEERS];
    echo = count > 1 && strcmp(words[1], "echo") == 0;
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, PEERS)) return 1;
    getsockname(listener, (struct sockaddr *)&here, &here_bytes);
    port = ntohs(here.sin_port);
    printf("%d\n", port);
    fflush(stdout);
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.ptr = &listener});
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &(struct epoll_event){.events = EPOLLIN, .data.ptr = &poll});
    for (;;) {
        struct epoll_event events[PEERS];
        int ready = epoll_wait(poll, events, PEERS, -1);
        for (int n = 0; n < ready; n++) {
            Peer *peer = events[n].data.ptr;
            if (events[n].data.ptr == &poll) return 0;
            if (events[n].data.ptr == &listener) {
                int fd = accept(listener, NULL, NULL);
                for (peer = peers; peer < peers + PEERS && peer->fd; peer++) {}
                if (fd < 0 || peer == peers + PEERS) return 4;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                *peer = (Peer){.fd = fd, .in = peer->in ? peer->in : malloc(IN_BYTES), .out = peer->out ? peer->out : malloc(OUT_BYTES)};
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = peer});
            } else if (!serve(peer)) {
                close(peer->fd);
                peer->fd = 0;
            }
        }
    }
}
