/* A connection of a load: what is still to be sent, what has come of an answer. Fails loudly: a load has no other peer.
 * One thread. */
#ifndef BENCH_CONNECTION_H
#define BENCH_CONNECTION_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
    int fd, watching_out;                     /* -1: not watched yet */
    unsigned char *in, *out;
    size_t in_bytes, in_room, out_at, out_bytes, out_room;
} Wire;

static const char *program;

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *text, ...)
{
    va_list words;
    va_start(words, text);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, text, words);
    fprintf(stderr, "\n");
    exit(1);
}

__attribute__((noreturn)) static void fail(const char *what) { give_up("%s: %s", what, strerror(errno)); }

/* The number behind `name=` among the words, or `otherwise`. */
static inline double option(int count, char **words, const char *name, double otherwise)
{
    size_t length = strlen(name);
    for (int n = 0; n < count; n++)
        if (!strncmp(words[n], name, length) && words[n][length] == '=') return atof(words[n] + length + 1);
    return otherwise;
}

enum { LOOKS = 200 };

/* Epoll's answer for a load that is as fast as it can be: it looks again for some 50 us before it sleeps, as a server
 * pays for each time that it wakes somebody on another CPU. */
static inline int ready_soon(int epoll, struct epoll_event *events, int count, int sleep_ms)
{
    for (int n = 0; n < LOOKS; n++) {
        int ready = epoll_wait(epoll, events, count, 0);
        if (ready) return ready;
    }
    return epoll_wait(epoll, events, count, sleep_ms);
}

static inline void watch(int epoll, Wire *wire, void *owner, int out)
{
    struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = owner };
    if (wire->watching_out == out) return;
    if (epoll_ctl(epoll, wire->watching_out < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, wire->fd, &event) < 0) fail("epoll_ctl");
    wire->watching_out = out;
}

static inline void join(int epoll, Wire *wire, void *owner, const char *host, const char *port, size_t in_room)
{
    struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    int yes = 1;
    if (inet_pton(AF_INET, host, &place.sin_addr) != 1) give_up("%s is no IPv4 address", host);
    wire->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (wire->fd < 0) fail("socket");
    if (connect(wire->fd, (const struct sockaddr *) &place, sizeof place) < 0) fail("connect");
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    wire->in = malloc(in_room);
    if (!wire->in) fail("malloc");
    wire->in_room = in_room;
    wire->watching_out = -1;
    watch(epoll, wire, owner, 0);
}

/* Room for one more request; it is sent by `push`. */
static inline unsigned char *room_for(Wire *wire, size_t size)
{
    if (wire->out_bytes + size > wire->out_room) {
        wire->out_room = (wire->out_bytes + size) * 2;
        wire->out = realloc(wire->out, wire->out_room);
        if (!wire->out) fail("realloc");
    }
    wire->out_bytes += size;
    return wire->out + wire->out_bytes - size;
}

static inline void push(int epoll, Wire *wire, void *owner)
{
    while (wire->out_at < wire->out_bytes) {
        ssize_t sent = send(wire->fd, wire->out + wire->out_at, wire->out_bytes - wire->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) fail("send");
            watch(epoll, wire, owner, 1);
            return;
        }
        wire->out_at += sent;
    }
    wire->out_at = wire->out_bytes = 0;
    watch(epoll, wire, owner, 0);
}

/* What is there now is behind what was left; 0 when there is nothing. */
static inline int pull_in(Wire *wire)
{
    ssize_t got = recv(wire->fd, wire->in + wire->in_bytes, wire->in_room - wire->in_bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got < 0) fail("recv");
    if (got == 0) give_up("the server closed a connection");
    wire->in_bytes += got;
    return 1;
}

static inline void keep_rest(Wire *wire, size_t taken)
{
    memmove(wire->in, wire->in + taken, wire->in_bytes - taken);
    wire->in_bytes -= taken;
}

#endif
