/* A load generator for one server, one thread: prepared requests, pipelined over many connections.
 *
 *   loadgen HOST PORT REQUESTS connections=N depth=N requests=N [rate=N] [spread=1] [check=0] [step=N]
 *
 * REQUESTS is a file (requests.h); connection n sends them in order, starting at number n, or at even distances with
 * spread=1. The requests that replace answered ones are sent with one write. Without a rate, the load is limited only
 * by the depth. With a rate, requests are due at evenly spaced times whatever the server does, and latency counts
 * from the due time (coordinated omission). Latencies assume that responses come in order.
 *
 * Checked of RocketMQ's responses: the code; that each opaque comes back as often as it was sent; that the queue
 * offsets of sends (STEP messages each) are consecutive; records of pulls: lengths, consecutive queue offsets, and
 * the CRC of one record per response. check=0 (floors): only the code. Replies of redis: only their first byte.
 *
 * Prints one line of JSON: requests, seconds, bytes (of responses), wrong (responses that are no success or invalid),
 * p50, p99, p999, max in us.
 */
#define _GNU_SOURCE
#include "latency.h"
#include "records.h"
#include "requests.h"

enum { IN_BYTES = 1 << 20, DEPTH_MAX = 4096 };

typedef struct {
    Connection connection;
    int next;                                 /* request */
    long sent, answered;
    uint64_t sent_sum, returned_sum;          /* sums over hashed opaques */
    int64_t started[DEPTH_MAX];               /* ns, by number of the request */
} Sender;

static int depth, sender_count, redis, check, epoll;
static long goal, started, done, wrong, due, records_seen;
static uint64_t answered_bytes;
static const char *fault;
static Latency latency;
static Sender *senders;
static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":"), queue_offset = MEMBER("\"queueOffset\":\"");

static uint64_t hashed(uint64_t number) { return number * 0x9E3779B97F4A7C15u ^ number >> 7; }

static void count_wrong(const char *what)
{
    if (!fault) fault = what;
    wrong++;
}

/* Appends the next request to the sender's buffer. */
static void send_request(Sender *sender, int64_t at)
{
    const Request *request = &requests[sender->next];
    memcpy(reserve_out(&sender->connection, request->size), request->at, request->size);
    sender->started[sender->sent++ % DEPTH_MAX] = at;
    sender->sent_sum += hashed(sender->next + 1);
    started++;
    if (++sender->next == request_count) sender->next = 0;
}

static void check_records(const Answer *answer)
{
    int64_t before = -1;
    long checked = records_seen++ % 32, number = 0;
    RecordView record;
    for (size_t at = 0; at < answer->body_bytes; at += record.size, number++) {
        const char *what = parse_record(answer->body + at, answer->body_bytes - at, &record);
        if (what) { count_wrong(what); return; }
        if (before >= 0 && record.queue_offset != before + 1) { count_wrong("queue offsets of a pull are not consecutive"); return; }
        if (number == checked && !is_intact(&record)) { count_wrong("the CRC of a body is wrong"); return; }
        before = record.queue_offset;
    }
    if (!number) count_wrong("a pull found nothing");
}

static void check_answer(Sender *sender, const Answer *answer)
{
    if (number_of(&code, answer->header, answer->header_bytes) != 0) { count_wrong("a response has another code than success"); return; }
    if (!check) return;
    int64_t number = number_of(&opaque, answer->header, answer->header_bytes) - OPAQUE_BASE;
    if (number < 1 || number > request_count) { count_wrong("a response has an opaque that was never sent"); return; }
    sender->returned_sum += hashed(number);
    int queue_sends_id = requests[number - 1].queue_sends_id;
    if (queue_sends_id < 0) { check_records(answer); return; }
    int64_t offset = number_of(&queue_offset, answer->header, answer->header_bytes);
    if (offset < 0) { count_wrong("a response has no queue offset"); return; }
    note_offset(queue_sends_id, offset);
}

/* Size of the redis reply at `at` in bytes; 0: it is incomplete. */
static size_t take_reply(const unsigned char *at, size_t available)
{
    const unsigned char *end = memchr(at, '\n', available);
    if (!end) return 0;
    size_t size = end - at + 1;
    if (at[0] == '$') size += atol((const char *) at + 1) + 2;
    if (size > available) return 0;
    if (at[0] != '+' && at[0] != '$') count_wrong("a reply is not a success");
    return size;
}

static size_t take(Sender *sender, const unsigned char *at, size_t available)
{
    if (redis) return take_reply(at, available);
    Answer answer;
    long size = take_answer(at, available, IN_BYTES - 4, &answer);
    if (size < 0) die("a response has invalid lengths");
    if (size) check_answer(sender, &answer);
    return size;
}

static void take_answers(Sender *sender)
{
    Connection *connection = &sender->connection;
    if (!read_available(connection)) return;
    int64_t now = now_ns();
    size_t at = 0, size;
    while (at < connection->in_bytes && (size = take(sender, connection->in + at, connection->in_bytes - at))) {
        if (sender->answered == sender->sent) die("there are more responses than requests");
        count_latency(&latency, now - sender->started[sender->answered++ % DEPTH_MAX]);
        done++;
        answered_bytes += size;
        at += size;
    }
    keep_partial(connection, at);
}

static void refill(Sender *sender)
{
    int64_t now = now_ns();
    while (sender->sent - sender->answered < depth && started < goal) send_request(sender, now);
    push(epoll, &sender->connection, sender);
}

/* Sends the requests that are due. */
static void keep_pace(int64_t start, double rate)
{
    int64_t now = now_ns();
    long before = due;
    for (; due < goal && start + (int64_t) (due * 1e9 / rate) <= now; due++) {
        Sender *sender = &senders[due % sender_count];
        if (sender->sent - sender->answered >= DEPTH_MAX) die("the server is too slow for this rate");
        send_request(sender, start + (int64_t) (due * 1e9 / rate));
    }
    for (long n = before; n < due && n < before + sender_count; n++)
        push(epoll, &senders[n % sender_count].connection, &senders[n % sender_count]);
}

static void run(double rate)
{
    struct epoll_event events[256];
    int64_t start = now_ns();
    if (!rate)
        for (int n = 0; n < sender_count; n++) refill(&senders[n]);
    while (done < goal) {
        if (rate) keep_pace(start, rate);
        int ready = rate ? epoll_wait(epoll, events, 256, 0) : ready_soon(epoll, events, 256, -1);
        for (int n = 0; n < ready; n++) {
            Sender *sender = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) push(epoll, &sender->connection, sender);
            if (events[n].events & ~EPOLLOUT) take_answers(sender);
        }
        if (!rate)
            for (int n = 0; n < ready; n++) refill(events[n].data.ptr);
    }
}

static void check_sums(long step)
{
    if (!check) return;
    for (int n = 0; n < sender_count; n++)
        if (senders[n].sent_sum != senders[n].returned_sum) count_wrong("the returned opaques are not those that were sent");
    if (torn_queues(step)) count_wrong("queue offsets of sends are not consecutive");
}

int main(int count, char **words)
{
    program = "loadgen";
    if (count < 4) die("HOST PORT REQUESTS connections=N depth=N requests=N [rate=N] [spread=1] [check=0] [step=N]");
    fa_crc_prepare();
    load_requests(words[3]);
    redis = requests[0].at[0] == '*';
    sender_count = (int) option(count, words, "connections", 1);
    depth = (int) option(count, words, "depth", 1);
    goal = (long) option(count, words, "requests", 1);
    check = !redis && option(count, words, "check", 1) != 0;
    double rate = option(count, words, "rate", 0);
    if (depth < 1 || depth > DEPTH_MAX || sender_count < 1) die("connections must be at least 1 and depth 1 to %d", DEPTH_MAX);
    int stride = option(count, words, "spread", 0) ? request_count / sender_count + 1 : 1;
    senders = calloc(sender_count, sizeof *senders);
    epoll = epoll_create1(0);
    for (int n = 0; n < sender_count; n++) {
        open_connection(epoll, &senders[n].connection, &senders[n], words[1], words[2], IN_BYTES);
        senders[n].next = (int) ((long) n * stride % request_count);
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
