/* Very many idle consumers: each has one long poll in flight on an empty topic, and sends the next when it gets a
 * response.
 *
 *   idlers HOST PORT GROUP TOPIC connections=N queues=N
 *
 * Prints `ready` once every pull is sent; exits when its standard input ends. Fails if a response is not "nothing
 * found" or has a wrong opaque, and if a connection is closed.
 */
#define _GNU_SOURCE
#include "pulling.h"

enum { IN_BYTES = 4096, EVENTS = 256 };

typedef struct {
    Connection connection;
    int queue, opaque;
} Idler;

static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":");

static void pull_again(int epoll, Idler *idler, char **words)
{
    ask_pull(&idler->connection, words[3], words[4], idler->queue, 0, ++idler->opaque);
    push(epoll, &idler->connection, idler);
}

static void take(int epoll, Idler *idler, char **words)
{
    Answer answer;
    if (!read_available(&idler->connection)) return;
    long size = take_answer(idler->connection.in, idler->connection.in_bytes, IN_BYTES - 4, &answer);
    if (size < 0) die("a response has invalid lengths");
    if (!size) return;
    int64_t response_code = number_of(&code, answer.header, answer.header_bytes);
    if (number_of(&opaque, answer.header, answer.header_bytes) != idler->opaque) die("the response to a pull has a wrong opaque");
    if (response_code != PULL_NOT_FOUND && response_code != PULL_AGAIN) die("a pull got the response code %ld", (long) response_code);
    keep_partial(&idler->connection, size);
    pull_again(epoll, idler, words);
}

int main(int count, char **words)
{
    program = "idlers";
    if (count < 5) die("HOST PORT GROUP TOPIC connections=N queues=N");
    int connections = (int) option(count, words, "connections", 1), queues = (int) option(count, words, "queues", 1);
    if (connections < 1 || queues < 1) die("a number is out of range");
    Idler *idlers = calloc(connections, sizeof *idlers);
    struct epoll_event events[EVENTS], input = { .events = EPOLLIN, .data.ptr = NULL };
    int epoll = epoll_create1(0);
    for (int n = 0; n < connections; n++) {
        idlers[n].queue = n % queues;
        open_connection(epoll, &idlers[n].connection, &idlers[n], words[1], words[2], IN_BYTES);
        pull_again(epoll, &idlers[n], words);
    }
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &input);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int n = 0; n < ready; n++) {
            Idler *idler = events[n].data.ptr;
            if (!idler) return 0;
            if (events[n].events & EPOLLOUT) push(epoll, &idler->connection, idler);
            if (events[n].events & ~EPOLLOUT) take(epoll, idler, words);
        }
    }
}
