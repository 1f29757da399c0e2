/* Producers and long-polling consumers of one topic in one thread: checks that each message arrives, measures how
 * fast.
 *
 *   endtoend HOST PORT REQUESTS GROUP TOPIC producers=N depth=N consumers=N messages=N [rate=N] [skip=N]
 *
 * REQUESTS are sends to TOPIC, which is new (requests.h). The first 16 bytes of each body are the time at which the
 * message should have been sent (CLOCK_MONOTONIC, ns) and its number. Consumer n reads queue n alone, with one pull
 * in flight, at most 32 messages each. Without a rate, producers are limited only by their depth. With a rate,
 * messages are due at evenly spaced times whatever the server does (coordinated omission), and the generator sleeps
 * until the next one: a host that limits CPU time per 100 ms stops a machine whose CPUs both spin. Latency: from the
 * due time of a message to its arrival at the consumer; the first `skip` messages do not count.
 *
 * Checked: codes, opaques of pulls, queue offsets (consecutive, both of sends and of pulled messages), the CRC of
 * every body, that every number arrives once. Prints one line of JSON: requests (messages consumed), seconds (from
 * the first send to the last arrival), bytes (pulled), wrong, p50, p99, p999, max in us.
 */
#define _GNU_SOURCE
#include "latency.h"
#include "pulling.h"
#include "records.h"
#include "requests.h"

#include <sys/prctl.h>

enum { IN_BYTES = 1 << 20, DEPTH_MAX = 1 << 16, STAMP = 16, EVENTS = 64, SILENCE_S = 30 };

#define NS 1000000000LL

typedef struct {
    Connection connection;
    int queue;                                /* of a consumer; -1: a producer */
    int next, opaque;
    long sent, answered;
    int64_t queue_offset;                     /* of the next pull */
} Role;

static Role *roles;
static int role_count, producers, depth, epoll;
static long goal, started, answered, arrived, skipped;
static uint64_t pulled_bytes;
static const char *group, *topic;
static unsigned char *arrived_bits;           /* a bit for each number */
static int64_t last_arrival;
static Latency latency;
static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":");
static Member sent_offset = MEMBER("\"queueOffset\":\""), next_offset = MEMBER("\"nextBeginOffset\":\"");

static void send_message(Role *producer, int64_t at)
{
    const Request *request = &requests[producer->next];
    unsigned char *frame = reserve_out(&producer->connection, request->size);
    int64_t stamp[2] = { at, started };
    memcpy(frame, request->at, request->size);
    memcpy(frame + request->body, stamp, STAMP);
    started++;
    producer->sent++;
    if (++producer->next == request_count) producer->next = 0;
}

static void pull_next(Role *consumer)
{
    ask_pull(&consumer->connection, group, topic, consumer->queue, consumer->queue_offset, ++consumer->opaque);
}

static void take_message(const RecordView *record, int64_t now)
{
    int64_t stamp[2];
    if (!is_intact(record)) die("the CRC of a body is wrong");
    if (record->body_bytes < STAMP) die("a body arrived that was never sent");
    memcpy(stamp, record->body, STAMP);
    if (stamp[1] < 0 || stamp[1] >= started) die("a message arrived that was never sent");
    if (arrived_bits[stamp[1] / 8] >> stamp[1] % 8 & 1) die("message %ld arrived twice", (long) stamp[1]);
    arrived_bits[stamp[1] / 8] |= 1 << stamp[1] % 8;
    if (stamp[1] >= skipped) count_latency(&latency, now - stamp[0]);
    arrived++;
}

static void take_found(Role *consumer, const Answer *answer, int64_t now)
{
    RecordView record;
    for (size_t at = 0; at < answer->body_bytes; at += record.size) {
        const char *what = parse_record(answer->body + at, answer->body_bytes - at, &record);
        if (what) die("%s", what);
        if (record.queue_offset != consumer->queue_offset)
            die("queue %d: message %ld arrived instead of %ld", consumer->queue, (long) record.queue_offset, (long) consumer->queue_offset);
        consumer->queue_offset++;
        take_message(&record, now);
    }
    if (number_of(&next_offset, answer->header, answer->header_bytes) != consumer->queue_offset)
        die("queue %d: nextBeginOffset does not follow the messages", consumer->queue);
    pulled_bytes += answer->body_bytes;
    last_arrival = now;
}

static void take_pull(Role *consumer, const Answer *answer, int64_t now)
{
    int64_t response_code = number_of(&code, answer->header, answer->header_bytes);
    if (number_of(&opaque, answer->header, answer->header_bytes) != consumer->opaque) die("the response to a pull has a wrong opaque");
    if (response_code == PULL_FOUND) take_found(consumer, answer, now);
    else if (response_code != PULL_NOT_FOUND && response_code != PULL_AGAIN) die("a pull got the response code %ld", (long) response_code);
    if (arrived < goal) pull_next(consumer);
}

static void take_send_response(Role *producer, const Answer *answer)
{
    int64_t response_code = number_of(&code, answer->header, answer->header_bytes);
    if (response_code != 0) die("a send got the response code %ld: %.*s", (long) response_code, (int) answer->header_bytes, answer->header);
    int64_t number = number_of(&opaque, answer->header, answer->header_bytes) - OPAQUE_BASE;
    if (number < 1 || number > request_count) die("a response has an opaque that was never sent");
    note_offset(requests[number - 1].queue_sends_id, number_of(&sent_offset, answer->header, answer->header_bytes));
    producer->answered++;
    answered++;
}

static void take_answers(Role *role)
{
    Connection *connection = &role->connection;
    if (!read_available(connection)) return;
    int64_t now = now_ns();
    size_t at = 0;
    Answer answer;
    for (long size; at < connection->in_bytes; at += size) {
        size = take_answer(connection->in + at, connection->in_bytes - at, IN_BYTES - 4, &answer);
        if (size < 0) die("a response has invalid lengths");
        if (!size) break;
        if (role->queue < 0) take_send_response(role, &answer);
        else take_pull(role, &answer, now);
    }
    keep_partial(connection, at);
}

static void refill(Role *producer, int64_t now)
{
    while (producer->sent - producer->answered < depth && started < goal) send_message(producer, now);
}

/* Sends the messages that are due, then waits for responses until the next one is due. */
static int paced_wait(int64_t start, double rate, struct epoll_event *events)
{
    int64_t now = now_ns(), due = now + SILENCE_S * NS;
    long before = started;
    while (started < goal && (due = start + (int64_t) (started * 1e9 / rate)) <= now) {
        Role *producer = &roles[started % producers];
        if (producer->sent - producer->answered >= DEPTH_MAX) die("the server is too slow for this rate");
        send_message(producer, due);
    }
    for (long n = before; n < started && n < before + producers; n++) {
        Role *producer = &roles[n % producers];
        push(epoll, &producer->connection, producer);
    }
    now = now_ns();
    int64_t left = due > now ? due - now : 0;
    struct timespec wait = { left / NS, left % NS };
    return epoll_pwait2(epoll, events, EVENTS, &wait, NULL);
}

static void run(int64_t start, double rate)
{
    struct epoll_event events[EVENTS];
    last_arrival = start;
    for (int n = 0; n < role_count; n++) {
        if (n >= producers) pull_next(&roles[n]);
        else if (!rate) refill(&roles[n], now_ns());
        push(epoll, &roles[n].connection, &roles[n]);
    }
    while (arrived < goal || answered < goal) {
        int ready = rate ? paced_wait(start, rate, events) : ready_soon(epoll, events, EVENTS, 1000);
        for (int n = 0; n < ready; n++) {
            Role *role = events[n].data.ptr;
            if (events[n].events & ~EPOLLOUT) take_answers(role);
            if (!rate && role->queue < 0) refill(role, now_ns());
            push(epoll, &role->connection, role);
        }
        if (now_ns() - last_arrival > SILENCE_S * NS)
            die("%ld of %ld messages did not arrive", goal - arrived, goal);
    }
}

int main(int count, char **words)
{
    program = "endtoend";
    if (count < 6) die("HOST PORT REQUESTS GROUP TOPIC producers=N depth=N consumers=N messages=N [rate=N] [skip=N]");
    fa_crc_prepare();
    load_requests(words[3]);
    group = words[4];
    topic = words[5];
    producers = (int) option(count, words, "producers", 1);
    depth = (int) option(count, words, "depth", 1);
    goal = (long) option(count, words, "messages", 1);
    skipped = (long) option(count, words, "skip", 0);
    double rate = option(count, words, "rate", 0);
    role_count = producers + (int) option(count, words, "consumers", 1);
    if (depth < 1 || depth > DEPTH_MAX || producers < 1 || role_count <= producers || goal < 1) die("a number is out of range");
    for (int n = 0; n < request_count; n++)
        if (requests[n].queue_sends_id < 0 || requests[n].size - requests[n].body < STAMP) die("each request must be a send of %d bytes or more", STAMP);
    arrived_bits = calloc(goal / 8 + 1, 1);
    roles = calloc(role_count, sizeof *roles);
    epoll = epoll_create1(0);
    for (int n = 0; n < role_count; n++) {
        roles[n].queue = n < producers ? -1 : n - producers;
        roles[n].next = n % request_count;
        open_connection(epoll, &roles[n].connection, &roles[n], words[1], words[2], IN_BYTES);
    }
    prctl(PR_SET_TIMERSLACK, 1UL);            /* ns: wake when a message is due, not up to 50 us later */
    int64_t start = now_ns();
    run(start, rate);
    double seconds = (last_arrival - start) / 1e9;
    if (torn_queues(1)) die("queue offsets of sends are not consecutive");
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes\": %llu, \"wrong\": 0, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}\n",
           arrived, seconds, (unsigned long long) pulled_bytes, quantile_us(&latency, .5), quantile_us(&latency, .99),
           quantile_us(&latency, .999), latency.slowest / 1000.0);
    return 0;
}
