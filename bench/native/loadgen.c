/* A load on one server, from one thread: requests made beforehand, pipelined over many connections.
 *
 *   loadgen HOST PORT FRAMES CONNECTIONS DEPTH REQUESTS [RATE]
 *
 * FRAMES is a file of requests, each behind its size as a big-endian u32; each connection sends them in turn, beginning
 * at its own number. Answers are counted, in order, and never looked up: frames of RocketMQ by their length word, whose
 * header must hold "code":0; replies of redis by their first byte (+ and $). What was answered is sent again as one
 * write. Without RATE the load is as fast as DEPTH lets it; with RATE, requests begin at evenly spaced moments whatever
 * the server does, and a latency counts from the moment at which its request should have begun (coordinated omission).
 *
 * Prints one line of JSON: requests, seconds, bytes (answered), wrong (answers that are no success), p50, p99, p999, max in us.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 20, DEPTH_MAX = 4096, BUCKETS = 64 * 32 };

typedef struct {
    int fd, frame, watching_out;
    long sent, answered;                      /* requests */
    unsigned char *in, *out;
    size_t in_bytes, out_at, out_bytes, out_room;
    int64_t begun[DEPTH_MAX];                 /* ns, by number of request */
} Connection;

static struct { const unsigned char *at; size_t size; } frames[4096];
static int frame_count, depth, connection_count, redis;
static long goal, begun, done, wrong, due;
static uint64_t answered_bytes, histogram[BUCKETS];
static int64_t slowest;
static Connection *connections;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Buckets: 32 for each power of two, so that a quantile is right to 3 %. */
static void count_latency(int64_t ns)
{
    if (ns < 1) ns = 1;
    if (ns > slowest) slowest = ns;
    int high = 63 - __builtin_clzll((uint64_t) ns);
    int low = high >= 5 ? (ns >> (high - 5)) & 31 : (ns << (5 - high)) & 31;
    histogram[high * 32 + low]++;
}

static double quantile_us(double part)
{
    uint64_t wanted = (uint64_t) (part * done), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram[bucket];
        if (seen > wanted) {
            int high = bucket / 32, low = bucket % 32;
            return (high >= 5 ? (double) ((32LL + low) << (high - 5)) : (double) (32 + low) / (1 << (5 - high))) / 1000;
        }
    }
    return slowest / 1000.0;
}

static void load_frames(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file), at = 0;
    unsigned char *data = malloc(size);
    rewind(file);
    if (fread(data, 1, size, file) != size) fail(path);
    fclose(file);
    while (at + 4 <= size && frame_count < 4096) {
        uint32_t length;
        memcpy(&length, data + at, 4);
        length = ntohl(length);
        if (at + 4 + length > size) break;
        frames[frame_count].at = data + at + 4;
        frames[frame_count++].size = length;
        at += 4 + length;
    }
    if (!frame_count) { fprintf(stderr, "loadgen: no request in %s\n", path); exit(1); }
    redis = frames[0].at[0] == '*';
}

static void watch(int epoll, Connection *connection, int out)
{
    struct epoll_event event = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = connection };
    if (epoll_ctl(epoll, connection->watching_out < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, connection->fd, &event) < 0)
        fail("epoll_ctl");
    connection->watching_out = out;
}

static void join(Connection *connection, int number, const struct sockaddr_in *place)
{
    int yes = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (const struct sockaddr *) place, sizeof *place) < 0) fail("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connection->frame = number % frame_count;
    connection->in = malloc(IN_BYTES);
    connection->watching_out = -1;
}

/* Write one more request into the connection's buffer. */
static void ask(Connection *connection, int64_t at)
{
    size_t size = frames[connection->frame].size;
    if (connection->out_bytes + size > connection->out_room) {
        connection->out_room = (connection->out_bytes + size) * 2;
        connection->out = realloc(connection->out, connection->out_room);
    }
    memcpy(connection->out + connection->out_bytes, frames[connection->frame].at, size);
    connection->out_bytes += size;
    connection->begun[connection->sent % DEPTH_MAX] = at;
    connection->sent++;
    begun++;
    if (++connection->frame == frame_count) connection->frame = 0;
}

static void push(int epoll, Connection *connection)
{
    while (connection->out_at < connection->out_bytes) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_at,
                            connection->out_bytes - connection->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) fail("send");
            if (connection->watching_out != 1) watch(epoll, connection, 1);
            return;
        }
        connection->out_at += sent;
    }
    connection->out_at = connection->out_bytes = 0;
    if (connection->watching_out != 0) watch(epoll, connection, 0);
}

/* Bytes of the whole answer at `at`, 0 while it is cut; sets whether it is a success. */
static size_t answer_size(const unsigned char *at, size_t available, int *success)
{
    if (redis) {
        const unsigned char *end = memchr(at, '\n', available);
        if (!end) return 0;
        size_t line = end - at + 1;
        *success = at[0] == '+' || at[0] == '$';
        if (at[0] != '$') return line;
        size_t size = line + atol((const char *) at + 1) + 2;
        return size <= available ? size : 0;
    }
    uint32_t length, header;
    if (available < 8) return 0;
    memcpy(&length, at, 4);
    memcpy(&header, at + 4, 4);
    length = ntohl(length);
    if (4 + (size_t) length > available) return 0;
    header = ntohl(header) & 0xFFFFFF;
    *success = memmem(at + 8, header < 64 ? header : 64, "\"code\":0", 8) != NULL;
    return 4 + (size_t) length;
}

static void take_answers(Connection *connection)
{
    ssize_t got = recv(connection->fd, connection->in + connection->in_bytes, IN_BYTES - connection->in_bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { fprintf(stderr, "loadgen: the server closed a connection\n"); exit(1); }
    int64_t now = now_ns();
    size_t at = 0, size;
    int success = 0;
    connection->in_bytes += got;
    while (at < connection->in_bytes && (size = answer_size(connection->in + at, connection->in_bytes - at, &success))) {
        count_latency(now - connection->begun[connection->answered % DEPTH_MAX]);
        connection->answered++;
        done++;
        wrong += !success;
        answered_bytes += size;
        at += size;
    }
    memmove(connection->in, connection->in + at, connection->in_bytes - at);
    connection->in_bytes -= at;
}

static void refill(int epoll, Connection *connection)
{
    int64_t now = now_ns();
    while (connection->sent - connection->answered < depth && begun < goal) ask(connection, now);
    push(epoll, connection);
}

int main(int count, char **words)
{
    if (count < 7) { fprintf(stderr, "loadgen HOST PORT FRAMES CONNECTIONS DEPTH REQUESTS [RATE]\n"); return 2; }
    struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(atoi(words[2])) };
    inet_pton(AF_INET, words[1], &place.sin_addr);
    load_frames(words[3]);
    connection_count = atoi(words[4]);
    depth = atoi(words[5]);
    goal = atol(words[6]);
    double rate = count > 7 ? atof(words[7]) : 0;
    if (depth > DEPTH_MAX || connection_count < 1) { fprintf(stderr, "loadgen: depth is at most %d\n", DEPTH_MAX); return 2; }
    if (rate) depth = DEPTH_MAX;
    connections = calloc(connection_count, sizeof *connections);
    int epoll = epoll_create1(0);
    for (int n = 0; n < connection_count; n++) {
        join(&connections[n], n, &place);
        watch(epoll, &connections[n], 0);
    }
    int64_t start = now_ns();
    if (!rate)
        for (int n = 0; n < connection_count; n++) refill(epoll, &connections[n]);
    struct epoll_event events[256];
    while (done < goal) {
        int timeout = -1;
        if (rate) {
            int64_t now = now_ns();
            while (due < goal && start + (int64_t) (due * 1e9 / rate) <= now) {
                Connection *connection = &connections[due % connection_count];
                if (connection->sent - connection->answered >= DEPTH_MAX) { fprintf(stderr, "loadgen: the server is too slow\n"); return 1; }
                ask(connection, start + (int64_t) (due * 1e9 / rate));
                push(epoll, connection);
                due++;
            }
            timeout = 0;
        }
        int ready = epoll_wait(epoll, events, 256, timeout);
        for (int n = 0; n < ready; n++) {
            Connection *connection = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) push(epoll, connection);
            if (events[n].events & ~EPOLLOUT) take_answers(connection);
        }
        if (!rate)
            for (int n = 0; n < ready; n++) refill(epoll, events[n].data.ptr);
    }
    double seconds = (now_ns() - start) / 1e9;
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes\": %llu, \"wrong\": %ld, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}\n",
           done, seconds, (unsigned long long) answered_bytes, wrong, quantile_us(.5), quantile_us(.99), quantile_us(.999), slowest / 1000.0);
    return 0;
}
