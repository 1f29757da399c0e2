/* A connection of a load generator: requests still to be sent, responses that are incomplete. Exits with a message on
 * any error. One thread. */
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
    size_t in_bytes, in_capacity, out_at, out_bytes, out_capacity;
    void *tls;                                /* its session, in programs that define BENCH_TLS */
} Connection;

static const char *program;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *text, ...)
{
    va_list words;
    va_start(words, text);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, text, words);
    fprintf(stderr, "\n");
    exit(1);
}

__attribute__((noreturn)) static void fail(const char *what) { die("%s: %s", what, strerror(errno)); }

/* The number after `name=` among the arguments, or `otherwise`. */
static inline double option(int count, char **words, const char *name, double otherwise)
{
    size_t length = strlen(name);
    for (int n = 0; n < count; n++)
        if (!strncmp(words[n], name, length) && words[n][length] == '=') return atof(words[n] + length + 1);
    return otherwise;
}

enum { POLLS_BEFORE_SLEEP = 200 };

/* epoll_wait for a flat-out load: polls for about 50 us before it sleeps, since a server pays each time it wakes a
 * process on another CPU. */
static inline int ready_soon(int epoll, struct epoll_event *events, int count, int sleep_ms)
{
    for (int n = 0; n < POLLS_BEFORE_SLEEP; n++) {
        int ready = epoll_wait(epoll, events, count, 0);
        if (ready) return ready;
    }
    return epoll_wait(epoll, events, count, sleep_ms);
}

#ifdef BENCH_TLS
#include "tls.h"
#else
static inline void open_tls(Connection *connection) { (void) connection; }

static inline void encrypt_out(Connection *connection) { (void) connection; }

static inline void all_sent(Connection *connection) { (void) connection; }

static inline ssize_t receive(Connection *connection, void *to, size_t length)
{
    return recv(connection->fd, to, length, MSG_DONTWAIT);
}
#endif

static inline void watch(int epoll, Connection *connection, void *owner, int out)
{
    struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = owner };
    if (connection->watching_out == out) return;
    if (epoll_ctl(epoll, connection->watching_out < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, connection->fd, &event) < 0) fail("epoll_ctl");
    connection->watching_out = out;
}

static inline void open_connection(int epoll, Connection *connection, void *owner, const char *host, const char *port, size_t in_capacity)
{
    struct sockaddr_in remote = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    int yes = 1;
    if (inet_pton(AF_INET, host, &remote.sin_addr) != 1) die("%s is not an IPv4 address", host);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0) fail("socket");
    if (connect(connection->fd, (const struct sockaddr *) &remote, sizeof remote) < 0) fail("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    open_tls(connection);
    connection->in = malloc(in_capacity);
    if (!connection->in) fail("malloc");
    connection->in_capacity = in_capacity;
    connection->watching_out = -1;
    watch(epoll, connection, owner, 0);
}

/* Buffer space for one more request, which `push` sends. */
static inline unsigned char *reserve_out(Connection *connection, size_t size)
{
    if (connection->out_bytes + size > connection->out_capacity) {
        connection->out_capacity = (connection->out_bytes + size) * 2;
        connection->out = realloc(connection->out, connection->out_capacity);
        if (!connection->out) fail("realloc");
    }
    connection->out_bytes += size;
    return connection->out + connection->out_bytes - size;
}

static inline void push(int epoll, Connection *connection, void *owner)
{
    encrypt_out(connection);
    while (connection->out_at < connection->out_bytes) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_at, connection->out_bytes - connection->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) fail("send");
            watch(epoll, connection, owner, 1);
            return;
        }
        connection->out_at += sent;
    }
    connection->out_at = connection->out_bytes = 0;
    all_sent(connection);
    watch(epoll, connection, owner, 0);
}

/* Reads after the incomplete response; 0: nothing to read. */
static inline int read_available(Connection *connection)
{
    ssize_t got = receive(connection, connection->in + connection->in_bytes, connection->in_capacity - connection->in_bytes);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got < 0) fail("recv");
    if (got == 0) die("the server closed a connection");
    connection->in_bytes += got;
    return 1;
}

static inline void keep_partial(Connection *connection, size_t taken)
{
    memmove(connection->in, connection->in + taken, connection->in_bytes - taken);
    connection->in_bytes -= taken;
}

#endif
