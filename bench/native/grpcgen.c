/* A load generator for `apache.rocketmq.v2.MessagingService`, one thread: calls with the headers of Apache's Java client.
 *
 *   grpcgen HOST PORT MESSAGES connections=N depth=N requests=N [receive=1]
 *
 * MESSAGES is a file (requests.h). Without `receive`, each is a SendMessageRequest of one message; connection n sends them
 * in order, starting at number n, with `depth` calls in flight. With `receive`, they are a TelemetryCommand with the
 * settings of a consumer, a ReceiveMessageRequest, and an AckMessageRequest without entries: each connection opens its
 * Telemetry stream, then has `depth` receives in flight, and acknowledges each message by a call of its own, as Apache's
 * clients do; `requests` are messages then, and their latency is that of the acknowledgement.
 *
 * Checked: grpc-status 0, and the code OK in the status of each answer. A call whose stream the server resets is counted in
 * `resets` and made again on a new stream; its latency begins with the first one. Prints one line of JSON as loadgen does.
 */
#define _GNU_SOURCE
#include "connection.h"
#include "http2_client.h"
#include "latency.h"

enum { IN_BYTES = 1 << 20, WINDOW = 64 << 20, MESSAGE_MAX = 1 << 16, PREFIX = 5, HEADERS = 15, KINDS = 4 };
enum Kind { SEND, TELEMETRY, RECEIVE, ACK };

typedef struct { unsigned char *at; size_t size; } Bytes;

typedef struct {
    Connection connection;
    nghttp2_session *session;
    int next, in_flight, ready;               /* message · of sends or receives · its settings were answered */
    char client_id[64];
} Client;

typedef struct Call {
    Client *client;
    enum Kind kind;
    int64_t started;
    size_t out_at, out_bytes, in_bytes, in_capacity;
    unsigned char *out, *in;                  /* `out`: of MESSAGES, or owned by an ACK */
    char status;
    struct Call *following;                   /* in the list of unused ones */
} Call;

static const char *paths[KINDS] = { "SendMessage", "Telemetry", "ReceiveMessage", "AckMessage" };
static Bytes *messages;
static int message_count, depth, client_count, receiving, epoll;
static long goal, started, done, wrong, resets, request_number;
static uint64_t answered_bytes;
static const char *fault;
static Latency latency;
static Client *clients;
static Call *unused;

static void count_wrong(const char *what)
{
    if (!fault) fault = what;
    wrong++;
}

/* Reads MESSAGES, and puts gRPC's prefix before each. */
static void load_messages(const char *path)
{
    FILE *file = fopen(path, "rb");
    unsigned char head[4];
    if (!file) fail(path);
    while (fread(head, 1, 4, file) == 4) {
        size_t size = (size_t) head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
        if (size > 8 << 20) die("%s has a message of %zu bytes", path, size);
        messages = realloc(messages, (message_count + 1) * sizeof *messages);
        Bytes *message = &messages[message_count++];
        message->size = PREFIX + size;
        message->at = malloc(message->size);
        message->at[0] = 0;
        memcpy(message->at + 1, head, 4);
        if (fread(message->at + PREFIX, 1, size, file) != size) die("%s is incomplete", path);
    }
    fclose(file);
    if (!message_count || (receiving && message_count != 3)) die("%s has %d messages", path, message_count);
}

/* ---- calls ---- */

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *to, size_t length, uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void) session, (void) stream, (void) user;
    Call *call = source->ptr;
    size_t left = call->out_bytes - call->out_at, part = left < length ? left : length;
    if (!left && call->kind == TELEMETRY) return -508; /* NGHTTP2_ERR_DEFERRED: the stream stays open */
    memcpy(to, call->out + call->out_at, part);
    call->out_at += part;
    if (call->out_at == call->out_bytes && call->kind != TELEMETRY) *flags |= 1; /* END_STREAM */
    return part;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv) { (uint8_t *) name, (uint8_t *) value, strlen(name), strlen(value), 0 };
}

/* Opens a stream for the call. */
static void submit(Call *call)
{
    char path[96], id[40], date[24];
    time_t now = time(NULL);
    struct tm parts;
    Client *client = call->client;
    call->out_at = call->in_bytes = 0;
    call->status = 0;
    snprintf(path, sizeof path, "/apache.rocketmq.v2.MessagingService/%s", paths[call->kind]);
    snprintf(id, sizeof id, "6a583269-da12-43a3-9c19-%012lx", request_number++);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
    nghttp2_nv headers[HEADERS] = {
        header(":method", "POST"), header(":scheme", "http"), header(":authority", "127.0.0.1:8081"), header(":path", path),
        header("content-type", "application/grpc"), header("te", "trailers"), header("user-agent", "grpc-java-netty/1.50.0"),
        header("x-mq-language", "JAVA"), header("x-mq-protocol", "v2"), header("x-mq-client-version", "5.2.0"),
        header("x-mq-date-time", date), header("x-mq-request-id", id), header("x-mq-client-id", client->client_id),
        header("x-mq-namespace", ""), header("grpc-timeout", call->kind == RECEIVE ? "25000m" : "9999m"),
    };
    nghttp2_data_provider provider = { .source.ptr = call, .read_callback = read_out };
    size_t count = call->kind == TELEMETRY ? HEADERS - 1 : HEADERS; /* its stream has no deadline */
    int32_t stream = nghttp2_submit_request(client->session, NULL, headers, count, &provider, call);
    if (stream < 0) die("a call cannot be made: %s", nghttp2_strerror(stream));
}

static void begin_call(Client *client, enum Kind kind, unsigned char *out, size_t out_bytes)
{
    Call *call = unused;
    if (call) unused = call->following;
    else call = calloc(1, sizeof *call);
    call->client = client;
    call->kind = kind;
    call->out = out;
    call->out_bytes = out_bytes;
    call->started = now_ns();
    submit(call);
}

static void refill(Client *client)
{
    while (receiving && client->ready && client->in_flight < depth && done < goal) {
        begin_call(client, RECEIVE, messages[1].at, messages[1].size);
        client->in_flight++;
    }
    while (!receiving && client->in_flight < depth && started < goal) {
        begin_call(client, SEND, messages[client->next].at, messages[client->next].size);
        client->next = (client->next + 1) % message_count;
        client->in_flight++;
        started++;
    }
}

/* ---- messages of protobuf ---- */

static const unsigned char *varint(const unsigned char *at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        *value |= (uint64_t) (*at & 0x7F) << shift;
        if (*at++ < 0x80) return at;
    }
    die("an answer is no message");
}

/* The bytes of field `wanted` of a message; its size is 0 if there is none. */
static Bytes field(Bytes message, unsigned wanted)
{
    const unsigned char *at = message.at, *end = at + message.size;
    uint64_t key, value;
    while (at < end) {
        at = varint(at, end, &key);
        if ((key & 7) == 1 || (key & 7) == 5) { at += (key & 7) == 1 ? 8 : 4; continue; }
        at = varint(at, end, &value);
        if ((key & 7) != 2) continue;
        if (value > (uint64_t) (end - at)) die("an answer is no message");
        if (key >> 3 == wanted) return (Bytes) { (unsigned char *) at, value };
        at += value;
    }
    return (Bytes) { NULL, 0 };
}

static int is_ok(Bytes answer)
{
    static const unsigned char ok[] = { 0x08, 0xA0, 0x9C, 0x01 }; /* code 20000 */
    Bytes status = field(answer, 1);
    return status.size >= sizeof ok && !memcmp(status.at, ok, sizeof ok);
}

static unsigned char *put_text(unsigned char *to, unsigned key, Bytes text)
{
    *to++ = key;
    if (text.size >= 0x80) *to++ = (text.size & 0x7F) | 0x80;
    *to++ = text.size >= 0x80 ? text.size >> 7 : text.size;
    memcpy(to, text.at, text.size);
    return to + text.size;
}

static void acknowledge(Client *client, Bytes message)
{
    Bytes own = field(message, 3), id = field(own, 3), handle = field(own, 12);
    unsigned char entry[1024], *end;
    if (!id.size || !handle.size || id.size + handle.size > sizeof entry - 8) die("a message has no id or receipt handle");
    end = put_text(put_text(entry, 0x0A, id), 0x12, handle);
    size_t head = messages[2].size;
    unsigned char *out = malloc(head + (end - entry) + 4);
    memcpy(out, messages[2].at, head);
    size_t size = put_text(out + head, 0x1A, (Bytes) { entry, end - entry }) - out;
    uint32_t length = htonl(size - PREFIX);
    memcpy(out + 1, &length, 4);
    begin_call(client, ACK, out, size);
}

/* ---- answers ---- */

/* The next message of an answer, without its prefix; its size is -1 if it is not whole. */
static size_t next_message(const Call *call, size_t at)
{
    if (call->in_bytes - at < PREFIX) return -1;
    size_t size = (size_t) call->in[at + 1] << 24 | call->in[at + 2] << 16 | call->in[at + 3] << 8 | call->in[at + 4];
    return call->in_bytes - at - PREFIX < size ? (size_t) -1 : size;
}

static void take_received(Call *call)
{
    size_t size;
    for (size_t at = 0; (size = next_message(call, at)) != (size_t) -1; at += PREFIX + size) {
        Bytes message = field((Bytes) { call->in + at + PREFIX, size }, 2);
        if (message.at && started < goal) {
            started++;
            acknowledge(call->client, message);
        }
    }
}

static void end_call(Call *call)
{
    Client *client = call->client;
    size_t size = next_message(call, 0);
    answered_bytes += call->in_bytes;
    if (call->status != '0') count_wrong("a call ended with another status than 0");
    else if (call->kind == RECEIVE) take_received(call);
    else if (call->kind == TELEMETRY) die("the Telemetry stream has ended");
    else if (size == (size_t) -1 || !is_ok((Bytes) { call->in + PREFIX, size })) count_wrong("an answer has another code than OK");
    if (call->kind == SEND || call->kind == ACK) {
        count_latency(&latency, now_ns() - call->started);
        done++;
    }
    if (call->kind == ACK) free(call->out);
    else client->in_flight--;
    call->following = unused;
    unused = call;
}

static void repeat(Call *call, uint32_t error)
{
    if (call->kind == TELEMETRY) die("the Telemetry stream was reset");
    if (!resets++) fprintf(stderr, "grpcgen: a stream of %s was reset with error %u\n", paths[call->kind], error);
    submit(call);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t length, const uint8_t *value, size_t value_length, uint8_t flags, void *user)
{
    (void) flags, (void) user;
    Call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call && length == 11 && !memcmp(name, "grpc-status", 11)) call->status = value_length == 1 ? value[0] : '?';
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t length, void *user)
{
    (void) flags, (void) user;
    Call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call) return 0;
    if (call->in_bytes + length > call->in_capacity) {
        call->in_capacity = (call->in_bytes + length) * 2;
        call->in = realloc(call->in, call->in_capacity);
    }
    memcpy(call->in + call->in_bytes, data, length);
    call->in_bytes += length;
    if (call->kind == TELEMETRY && next_message(call, 0) != (size_t) -1) call->client->ready = 1;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    (void) user;
    Call *call = nghttp2_session_get_stream_user_data(session, stream);
    if (call && error) repeat(call, error);
    else if (call) end_call(call);
    return 0;
}

/* ---- connections ---- */

static void push_frames(Client *client)
{
    const uint8_t *at;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(client->session, &at)) > 0) memcpy(reserve_out(&client->connection, size), at, size);
    if (size < 0) die("%s", nghttp2_strerror(size));
    push(epoll, &client->connection, client);
}

static void open_client(Client *client, int number, const char *host, const char *port, nghttp2_session_callbacks *callbacks)
{
    nghttp2_settings_entry settings[] = { { 4, WINDOW }, { 2, 0 } }; /* the window of a stream; no push */
    open_connection(epoll, &client->connection, client, host, port, IN_BYTES);
    snprintf(client->client_id, sizeof client->client_id, "client-host@%d@%d@fdapsmli", getpid(), number);
    client->next = number % message_count;
    if (nghttp2_session_client_new(&client->session, callbacks, client)) die("no memory");
    nghttp2_submit_settings(client->session, 0, settings, 2);
    nghttp2_session_set_local_window_size(client->session, 0, 0, WINDOW);
    if (receiving) begin_call(client, TELEMETRY, messages[0].at, messages[0].size);
    refill(client);
    push_frames(client);
}

static void take_answers(Client *client)
{
    Connection *connection = &client->connection;
    while (read_available(connection)) {
        ssize_t used = nghttp2_session_mem_recv(client->session, connection->in, connection->in_bytes);
        if (used < 0) die("%s", nghttp2_strerror(used));
        connection->in_bytes = 0;
    }
}

int main(int count, char **words)
{
    nghttp2_session_callbacks *callbacks;
    struct epoll_event events[256];
    program = "grpcgen";
    if (count < 4) die("HOST PORT MESSAGES connections=N depth=N requests=N [receive=1]");
    receiving = option(count, words, "receive", 0) != 0;
    load_messages(words[3]);
    client_count = (int) option(count, words, "connections", 1);
    depth = (int) option(count, words, "depth", 1);
    goal = (long) option(count, words, "requests", 1);
    if (client_count < 1 || depth < 1) die("connections and depth must be at least 1");
    clients = calloc(client_count, sizeof *clients);
    epoll = epoll_create1(0);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int64_t start = now_ns();
    for (int n = 0; n < client_count; n++) open_client(&clients[n], n, words[1], words[2], callbacks);
    while (done < goal) {
        int ready = ready_soon(epoll, events, 256, -1);
        for (int n = 0; n < ready; n++) {
            Client *client = events[n].data.ptr;
            if (events[n].events & ~EPOLLOUT) take_answers(client);
            refill(client);
            push_frames(client);
        }
    }
    double seconds = (now_ns() - start) / 1e9;
    if (fault) fprintf(stderr, "grpcgen: %s\n", fault);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"bytes\": %llu, \"wrong\": %ld, \"resets\": %ld, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}\n",
           done, seconds, (unsigned long long) answered_bytes, wrong, resets, quantile_us(&latency, .5), quantile_us(&latency, .99),
           quantile_us(&latency, .999), latency.slowest / 1000.0);
    return 0;
}
