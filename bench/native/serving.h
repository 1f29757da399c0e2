/* The loop of a minimal server: one thread, one epoll. Each pass reads all ready sockets, calls `end_pass`, then
 * sends the responses of each peer. It prints its port and exits when its standard input ends. The including program
 * defines how a frame and the end of a pass are handled. */
#ifndef BENCH_SERVING_H
#define BENCH_SERVING_H

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

enum { IN_BYTES = 1 << 18, FRAME_BYTES_MAX = 1 << 23, PEERS_AT_ONCE = 64 };

typedef struct {
    int fd, frames, watching_out;             /* frames: of this pass, not answered yet · -1: not watched yet */
    unsigned char *partial, *out;
    size_t partial_bytes, out_at, out_bytes, out_capacity;
} Peer;

static void take_frame(Peer *peer, const unsigned char *frame, size_t size);
static void end_pass(void);                   /* all frames were taken, nothing was sent yet */
static void answer_frames(Peer *peer);        /* append the responses to its frames */
static void forget(Peer *peer);               /* the peer is freed after this call */

static unsigned char in[IN_BYTES + FRAME_BYTES_MAX];
static int epoll;

static void fail(const char *what) { perror(what); exit(1); }

static void watch(Peer *peer, int out)
{
    struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = peer };
    if (peer->watching_out == out) return;
    epoll_ctl(epoll, peer->watching_out < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, peer->fd, &event);
    peer->watching_out = out;
}

static void disconnect(Peer *peer) { forget(peer); close(peer->fd); free(peer->partial); free(peer->out); free(peer); }

static unsigned char *reserve_out(Peer *peer, size_t size)
{
    if (peer->out_bytes + size > peer->out_capacity) {
        peer->out_capacity = (peer->out_bytes + size) * 2;
        peer->out = realloc(peer->out, peer->out_capacity);
    }
    peer->out_bytes += size;
    return peer->out + peer->out_bytes - size;
}

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

/* Takes and counts every complete frame; an incomplete one is kept in `partial`. */
static int read_frames(Peer *peer)
{
    memcpy(in, peer->partial, peer->partial_bytes);
    ssize_t got = recv(peer->fd, in + peer->partial_bytes, IN_BYTES, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN ? 0 : -1;
    size_t available = peer->partial_bytes + got, at = 0;
    while (available - at >= 4) {
        uint32_t size;
        memcpy(&size, in + at, 4);
        size = 4 + ntohl(size);
        if (size > FRAME_BYTES_MAX) return -1;
        if (size > available - at) break;
        take_frame(peer, in + at, size);
        peer->frames++;
        at += size;
    }
    peer->partial = realloc(peer->partial, available - at + 1);
    memcpy(peer->partial, in + at, available - at);
    peer->partial_bytes = available - at;
    return 0;
}

static void accept_peer(int listening)
{
    int yes = 1;
    Peer *peer = calloc(1, sizeof *peer);
    peer->fd = accept(listening, NULL, NULL);
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    peer->partial = malloc(1);
    peer->watching_out = -1;
    watch(peer, 0);
}

static int listen_on_free_port(void)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof here;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *) &here, sizeof here) < 0 || listen(listening, 1024) < 0) fail("listen");
    getsockname(listening, (struct sockaddr *) &here, &length);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    return listening;
}

static void serve(void)
{
    int listening = listen_on_free_port();
    epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL }, events[PEERS_AT_ONCE];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event);
    event.data.ptr = &epoll;
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, PEERS_AT_ONCE, -1);
        for (int n = 0; n < ready; n++) {
            Peer *peer = events[n].data.ptr;
            if (events[n].data.ptr == &epoll) return;
            if (!peer) {
                accept_peer(listening);
            } else if (events[n].events & ~EPOLLOUT && read_frames(peer) < 0) {
                disconnect(peer);
                events[n].data.ptr = NULL;
            }
        }
        end_pass();
        for (int n = 0; n < ready; n++) {
            Peer *peer = events[n].data.ptr;
            if (!peer) continue;
            answer_frames(peer);
            peer->frames = 0;
            if (push(peer) < 0) disconnect(peer);
        }
    }
}

#endif
