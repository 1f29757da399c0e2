/* A load on one server, from one thread: requests made beforehand, pipelined over many connections.
 *
 *   loadgen HOST PORT REQUESTS connections=N depth=N requests=N [rate=N] [spread=1] [check=0] [step=N]
 *
 * REQUESTS is a file (requests.h); each connection sends them in turn, beginning at its own number, or with spread=1 at
 * even distances. What was answered is sent again as one write. Without a rate the load is as fast as the depth lets it;
 * with one, requests begin at evenly spaced moments whatever the server does, and a latency counts from the moment at
 * which its request should have begun (coordinated omission). Latencies take answers to come in order.
 *
 * Of RocketMQ's answers are checked: the code; that a connection's opaques come back, each as often as it was sent; that
 * the queue offsets of sends (STEP messages each) are consecutive; records of pulls: lengths, consecutive queue offsets,
 * and the CRC of one record an answer, by turns. check=0 (floors): the code alone. Replies of redis: their first byte.
 *
 * Prints one line of JSON: requests, seconds, bytes (answered), wrong (answers that are no success, or not what they
 * should be), p50, p99, p999, max in us.
 */
#define _GNU_SOURCE
#include "latency.h"
#include "records.h"
#include "requests.h"

enum { IN_BYTES = 1 << 20, DEPTH_MAX = 4096 };

typedef struct {
    Wire wire;
    int next;                                 /* request */
    long sent, answered;
    uint64_t asked, told;                     /* sums over opaques */
    int64_t begun[DEPTH_MAX];                 /* ns, by number of request */
} Connection;

static int depth, connection_count, redis, check, epoll;
static long goal, begun, done, wrong, due, records_seen;
static uint64_t answered_bytes;
static const char *fault;
static Latency latency;
static Connection *connections;
static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":"), queue_offset = MEMBER("\"queueOffset\":\"");

static uint64_t mixed(uint64_t number) { return number * 0x9E3779B97F4A7C15u ^ number >> 7; }

static void refuse(const char *what)
{
    if (!fault) fault = what;
    wrong++;
}

/* Write one more request into the connection's buffer. */
static void ask(Connection *connection, int64_t at)
{
    const Request *request = &requests[connection->next];
    memcpy(room_for(&connection->wire, request->size), request->at, request->size);
    connection->begun[connection->sent++ % DEPTH_MAX] = at;
    connection->asked += mixed(connection->next + 1);
    begun++;
    if (++connection->next == request_count) connection->next = 0;
}

static void check_records(const Answer *answer)
{
    int64_t before = -1;
    long turn = records_seen++ % 32, number = 0;
    RecordSeen record;
    for (size_t at = 0; at < answer->body_bytes; at += record.size, number++) {
        const char *what = see_record(answer->body + at, answer->body_bytes - at, &record);
        if (what) { refuse(what); return; }
        if (before >= 0 && record.queue_offset != before + 1) { refuse("queue offsets of a pull are not consecutive"); return; }
        if (number == turn && !is_intact(&record)) { refuse("a body has another CRC"); return; }
        before = record.queue_offset;
    }
    if (!number) refuse("a pull found nothing");
}

static void check_answer(Connection *connection, const Answer *answer)
{
    if (number_of(&code, answer->header, answer->header_bytes) != 0) { refuse("an answer has another code"); return; }
    if (!check) return;
    int64_t number = number_of(&opaque, answer->header, answer->header_bytes);
    if (number < 1 || number > request_count) { refuse("an opaque that was never sent"); return; }
    connection->told += mixed(number);
    int lane = requests[number - 1].lane;
    if (lane < 0) { check_records(answer); return; }
    int64_t place = number_of(&queue_offset, answer->header, answer->header_bytes);
    if (place < 0) { refuse("an answer without its queue offset"); return; }
    note_offset(lane, place);
}

/* Bytes of the reply at `at`, 0 while it is cut. */
static size_t take_reply(const unsigned char *at, size_t available)
{
    const unsigned char *end = memchr(at, '\n', available);
    if (!end) return 0;
    size_t size = end - at + 1;
    if (at[0] == '$') size += atol((const char *) at + 1) + 2;
    if (size > available) return 0;
    if (at[0] != '+' && at[0] != '$') refuse("a reply is no success");
    return size;
}

static size_t take(Connection *connection, const unsigned char *at, size_t available)
{
    if (redis) return take_reply(at, available);
    Answer answer;
    long size = take_answer(at, available, IN_BYTES - 4, &answer);
    if (size < 0) give_up("an answer's lengths cannot be true");
    if (size) check_answer(connection, &answer);
    return size;
}

static void take_answers(Connection *connection)
{
    Wire *wire = &connection->wire;
    if (!pull_in(wire)) return;
    int64_t now = now_ns();
    size_t at = 0, size;
    while (at < wire->in_bytes && (size = take(connection, wire->in + at, wire->in_bytes - at))) {
        if (connection->answered == connection->sent) give_up("more answers than requests");
        count_latency(&latency, now - connection->begun[connection->answered++ % DEPTH_MAX]);
        done++;
        answered_bytes += size;
        at += size;
    }
    keep_rest(wire, at);
}

static void refill(Connection *connection)
{
    int64_t now = now_ns();
    while (connection->sent - connection->answered < depth && begun < goal) ask(connection, now);
    push(epoll, &connection->wire, connection);
}

/* Ask what is due by now. */
static void keep_pace(int64_t start, double rate)
{
    int64_t now = now_ns();
    long before = due;
    for (; due < goal && start + (int64_t) (due * 1e9 / rate) <= now; due++) {
        Connection *connection = &connections[due % connection_count];
        if (connection->sent - connection->answered >= DEPTH_MAX) give_up("the server is too slow for this rate");
        ask(connection, start + (int64_t) (due * 1e9 / rate));
    }
    for (long n = before; n < due && n < before + connection_count; n++)
        push(epoll, &connections[n % connection_count].wire, &connections[n % connection_count]);
}

static void run(double rate)
{
    struct epoll_event events[256];
    int64_t start = now_ns();
    if (!rate)
        for (int n = 0; n < connection_count; n++) refill(&connections[n]);
    while (done < goal) {
        if (rate) keep_pace(start, rate);
        int ready = rate ? epoll_wait(epoll, events, 256, 0) : ready_soon(epoll, events, 256, -1);
        for (int n = 0; n < ready; n++) {
            Connection *connection = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) push(epoll, &connection->wire, connection);
            if (events[n].events & ~EPOLLOUT) take_answers(connection);
        }
        if (!rate)
            for (int n = 0; n < ready; n++) refill(events[n].data.ptr);
    }
}

static void check_sums(long step)
{
    if (!check) return;
    for (int n = 0; n < connection_count; n++)
        if (connections[n].asked != connections[n].told) refuse("opaques came back that were not asked");
    if (torn_lanes(step)) refuse("queue offsets of sends are not consecutive");
}

int main(int count, char **words)
{
    program = "loadgen";
    if (count < 4) give_up("HOST PORT REQUESTS connections=N depth=N requests=N [rate=N] [spread=1] [check=0] [step=N]");
    fa_crc_prepare();
    load_requests(words[3]);
    redis = requests[0].at[0] == '*';
    connection_count = (int) option(count, words, "connections", 1);
    depth = (int) option(count, words, "depth", 1);
    goal = (long) option(count, words, "requests", 1);
    check = !redis && option(count, words, "check", 1) != 0;
    double rate = option(count, words, "rate", 0);
    if (depth < 1 || depth > DEPTH_MAX || connection_count < 1) give_up("depth is at most %d", DEPTH_MAX);
    int stride = option(count, words, "spread", 0) ? request_count / connection_count + 1 : 1;
    connections = calloc(connection_count, sizeof *connections);
    epoll = epoll_create1(0);
    for (int n = 0; n < connection_count; n++) {
        join(epoll, &connections[n].wire, &connections[n], words[1], words[2], IN_BYTES);
        connections[n].next = (int) ((long) n * stride % request_count);
    }
    int64_t start = now_ns();
    run(rate);
    double seconds = (now_ns() - start) / 1e9;
    check_sums((long) option(count, words, "step", 1));
    if (fault) fprintf(stderr, "loadgen: %s\n", fault);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes\": %llu, \"wrong\": %ld, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}\n",
           done, seconds, (unsigned long long) answered_bytes, wrong, quantile_us(&latency, .5), quantile_us(&latency, .99),
           quantile_us(&latency, .999), latency.slowest / 1000.0);
    return 0;
}
