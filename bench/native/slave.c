/* The least slave of an Apache broker: it takes the whole log, counts it, and acknowledges it.
 *
 *   slave HOST PORT
 *
 * Prints `ready` after the first piece; goes on until it is killed.
 */
#define _GNU_SOURCE
#include "connection.h"

enum { HEADER_BYTES = 12, DROPPED_MAX = 1 << 24 };

static int fd;

static void acknowledge(int64_t end)
{
    unsigned char frame[8];
    for (int n = 0; n < 8; n++) frame[n] = (unsigned char) ((uint64_t) end >> (56 - 8 * n));
    if (send(fd, frame, sizeof frame, MSG_NOSIGNAL) != sizeof frame) fail("send");
}

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int n = 0; n < bytes; n++) value = value << 8 | at[n];
    return value;
}

/* The kernel drops the bytes of the log, so that no copy of them is counted. */
static void drop(size_t length)
{
    while (length) {
        ssize_t got = recv(fd, NULL, length < DROPPED_MAX ? length : DROPPED_MAX, MSG_TRUNC);
        if (got <= 0) die("the master closed the connection");
        length -= got;
    }
}

int main(int count, char **words)
{
    struct sockaddr_in remote = { .sin_family = AF_INET };
    unsigned char header[HEADER_BYTES];
    int yes = 1, ready = 0;
    program = "slave";
    if (count != 3) die("HOST PORT");
    remote.sin_port = htons(atoi(words[2]));
    if (inet_pton(AF_INET, words[1], &remote.sin_addr) != 1) die("%s is not an IPv4 address", words[1]);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *) &remote, sizeof remote) < 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    acknowledge(0);
    for (;;) {
        if (recv(fd, header, HEADER_BYTES, MSG_WAITALL) != HEADER_BYTES) die("the master closed the connection");
        int64_t offset = (int64_t) number(header, 8);
        size_t size = number(header + 8, 4);
        drop(size);
        acknowledge(offset + (int64_t) size);
        if (!ready) {
            ready = 1;
            printf("ready\n");
            fflush(stdout);
        }
    }
}
