/* Producers and long-polling consumers of one topic in one thread: what goes in must come out, and how long it takes.
 *
 *   endtoend HOST PORT REQUESTS GROUP TOPIC producers=N depth=N consumers=N messages=N [rate=N] [skip=N]
 *
 * REQUESTS are sends to TOPIC, which is new (requests.h). Into each body go the moment at which the message should have
 * begun (CLOCK_MONOTONIC, ns) and its number: 16 bytes. Consumer n has queue n to itself and one pull on the way, 32
 * messages at most. Without a rate producers are as fast as their depth lets them; with one, messages begin at evenly
 * spaced moments whatever the server does (coordinated omission), and the load sleeps until the next one: a host that grants
 * so much time in 100 ms stops a machine whose CPUs both spin. Latencies: from a message's moment to its arrival at
 * the consumer; those of the first `skip` messages do not count.
 *
 * Checked: codes, opaques of pulls, queue offsets (of answers to sends consecutive; of what is pulled each the next), the CRC of
 * every body, every number once. Prints one line of JSON: requests (messages consumed), seconds (from the first send to the
 * last arrival), bytes (pulled), wrong, p50, p99, p999, max in us.
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
    Wire wire;
    int queue;                                /* of a consumer; -1: a producer */
    int next, opaque;
    long sent, answered;
    int64_t queue_offset;                     /* of the next pull */
} Role;

static Role *roles;
static int role_count, producers, depth, epoll;
static long goal, begun, answered, arrived, skipped;
static uint64_t pulled_bytes;
static const char *group, *topic;
static unsigned char *seen;                   /* a bit for each number */
static int64_t last_arrival;
static Latency latency;
static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":");
static Member told_offset = MEMBER("\"queueOffset\":\""), next_offset = MEMBER("\"nextBeginOffset\":\"");

static void ask(Role *producer, int64_t at)
{
    const Request *request = &requests[producer->next];
    unsigned char *frame = room_for(&producer->wire, request->size);
    int64_t stamp[2] = { at, begun };
    memcpy(frame, request->at, request->size);
    memcpy(frame + request->body, stamp, STAMP);
    begun++;
    producer->sent++;
    if (++producer->next == request_count) producer->next = 0;
}

static void poll_again(Role *consumer)
{
    ask_pull(&consumer->wire, group, topic, consumer->queue, consumer->queue_offset, ++consumer->opaque);
}

static void take_message(const RecordSeen *record, int64_t now)
{
    int64_t stamp[2];
    if (!is_intact(record)) give_up("a body has another CRC");
    if (record->body_bytes < STAMP) give_up("a body that was never sent");
    memcpy(stamp, record->body, STAMP);
    if (stamp[1] < 0 || stamp[1] >= begun) give_up("a message that was never sent");
    if (seen[stamp[1] / 8] >> stamp[1] % 8 & 1) give_up("message %ld came twice", (long) stamp[1]);
    seen[stamp[1] / 8] |= 1 << stamp[1] % 8;
    if (stamp[1] >= skipped) count_latency(&latency, now - stamp[0]);
    arrived++;
}

static void take_found(Role *consumer, const Answer *answer, int64_t now)
{
    RecordSeen record;
    for (size_t at = 0; at < answer->body_bytes; at += record.size) {
        const char *what = see_record(answer->body + at, answer->body_bytes - at, &record);
        if (what) give_up("%s", what);
        if (record.queue_offset != consumer->queue_offset)
            give_up("queue %d: message %ld came instead of %ld", consumer->queue, (long) record.queue_offset, (long) consumer->queue_offset);
        consumer->queue_offset++;
        take_message(&record, now);
    }
    if (number_of(&next_offset, answer->header, answer->header_bytes) != consumer->queue_offset)
        give_up("queue %d: the next offset is not behind the messages", consumer->queue);
    pulled_bytes += answer->body_bytes;
    last_arrival = now;
}

static void take_pull(Role *consumer, const Answer *answer, int64_t now)
{
    int64_t told = number_of(&code, answer->header, answer->header_bytes);
    if (number_of(&opaque, answer->header, answer->header_bytes) != consumer->opaque) give_up("a pull's answer has another opaque");
    if (told == PULL_FOUND) take_found(consumer, answer, now);
    else if (told != PULL_NOT_FOUND && told != PULL_AGAIN) give_up("a pull is answered with code %ld", (long) told);
    if (arrived < goal) poll_again(consumer);
}

static void take_receipt(Role *producer, const Answer *answer)
{
    int64_t told = number_of(&code, answer->header, answer->header_bytes);
    if (told != 0) give_up("a send is answered with code %ld: %.*s", (long) told, (int) answer->header_bytes, answer->header);
    int64_t number = number_of(&opaque, answer->header, answer->header_bytes);
    if (number < 1 || number > request_count) give_up("an opaque that was never sent");
    note_offset(requests[number - 1].lane, number_of(&told_offset, answer->header, answer->header_bytes));
    producer->answered++;
    answered++;
}

static void take_answers(Role *role)
{
    Wire *wire = &role->wire;
    if (!pull_in(wire)) return;
    int64_t now = now_ns();
    size_t at = 0;
    Answer answer;
    for (long size; at < wire->in_bytes; at += size) {
        size = take_answer(wire->in + at, wire->in_bytes - at, IN_BYTES - 4, &answer);
        if (size < 0) give_up("an answer's lengths cannot be true");
        if (!size) break;
        if (role->queue < 0) take_receipt(role, &answer);
        else take_pull(role, &answer, now);
    }
    keep_rest(wire, at);
}

static void refill(Role *producer, int64_t now)
{
    while (producer->sent - producer->answered < depth && begun < goal) ask(producer, now);
}

/* Ask what is due by now, and wait for answers until more is. */
static int paced_wait(int64_t start, double rate, struct epoll_event *events)
{
    int64_t now = now_ns(), due = now + SILENCE_S * NS;
    long before = begun;
    while (begun < goal && (due = start + (int64_t) (begun * 1e9 / rate)) <= now) {
        Role *producer = &roles[begun % producers];
        if (producer->sent - producer->answered >= DEPTH_MAX) give_up("the server is too slow for this rate");
        ask(producer, due);
    }
    for (long n = before; n < begun && n < before + producers; n++) {
        Role *producer = &roles[n % producers];
        push(epoll, &producer->wire, producer);
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
        if (n >= producers) poll_again(&roles[n]);
        else if (!rate) refill(&roles[n], now_ns());
        push(epoll, &roles[n].wire, &roles[n]);
    }
    while (arrived < goal || answered < goal) {
        int ready = rate ? paced_wait(start, rate, events) : ready_soon(epoll, events, EVENTS, 1000);
        for (int n = 0; n < ready; n++) {
            Role *role = events[n].data.ptr;
            if (events[n].events & ~EPOLLOUT) take_answers(role);
            if (!rate && role->queue < 0) refill(role, now_ns());
            push(epoll, &role->wire, role);
        }
        if (now_ns() - last_arrival > SILENCE_S * NS)
            give_up("%ld of %ld messages did not come", goal - arrived, goal);
    }
}

int main(int count, char **words)
{
    program = "endtoend";
    if (count < 6) give_up("HOST PORT REQUESTS GROUP TOPIC producers=N depth=N consumers=N messages=N [rate=N] [skip=N]");
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
    if (depth < 1 || depth > DEPTH_MAX || producers < 1 || role_count <= producers || goal < 1) give_up("a number is out of range");
    for (int n = 0; n < request_count; n++)
        if (requests[n].lane < 0 || requests[n].size - requests[n].body < STAMP) give_up("each request must be a send of %d bytes or more", STAMP);
    seen = calloc(goal / 8 + 1, 1);
    roles = calloc(role_count, sizeof *roles);
    epoll = epoll_create1(0);
    for (int n = 0; n < role_count; n++) {
        roles[n].queue = n < producers ? -1 : n - producers;
        roles[n].next = n % request_count;
        join(epoll, &roles[n].wire, &roles[n], words[1], words[2], IN_BYTES);
    }
    prctl(PR_SET_TIMERSLACK, 1UL);            /* ns: it wakes when a message is due, not up to 50 us later */
    int64_t start = now_ns();
    run(start, rate);
    double seconds = (last_arrival - start) / 1e9;
    if (torn_lanes(1)) give_up("queue offsets of sends are not consecutive");
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes\": %llu, \"wrong\": 0, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}\n",
           arrived, seconds, (unsigned long long) pulled_bytes, quantile_us(&latency, .5), quantile_us(&latency, .99),
           quantile_us(&latency, .999), latency.slowest / 1000.0);
    return 0;
}
