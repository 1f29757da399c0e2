/* Very many consumers that wait: each has one long poll on the way, on a topic that gets nothing, and asks anew when it
 * was answered.
 *
 *   idlers HOST PORT GROUP TOPIC connections=N queues=N
 *
 * Says `ready` once every pull is on its way; ends with its standard input. Gives up on an answer other than "nothing
 * found", on another opaque, and on a closed connection.
 */
#define _GNU_SOURCE
#include "pulling.h"

enum { IN_BYTES = 4096, EVENTS = 256 };

typedef struct {
    Wire wire;
    int queue, opaque;
} Idler;

static Member code = MEMBER("\"code\":"), opaque = MEMBER("\"opaque\":");

static void wait_again(int epoll, Idler *idler, char **words)
{
    ask_pull(&idler->wire, words[3], words[4], idler->queue, 0, ++idler->opaque);
    push(epoll, &idler->wire, idler);
}

static void take(int epoll, Idler *idler, char **words)
{
    Answer answer;
    if (!pull_in(&idler->wire)) return;
    long size = take_answer(idler->wire.in, idler->wire.in_bytes, IN_BYTES - 4, &answer);
    if (size < 0) give_up("an answer's lengths cannot be true");
    if (!size) return;
    int64_t told = number_of(&code, answer.header, answer.header_bytes);
    if (number_of(&opaque, answer.header, answer.header_bytes) != idler->opaque) give_up("a pull's answer has another opaque");
    if (told != PULL_NOT_FOUND && told != PULL_AGAIN) give_up("a pull is answered with code %ld", (long) told);
    keep_rest(&idler->wire, size);
    wait_again(epoll, idler, words);
}

int main(int count, char **words)
{
    program = "idlers";
    if (count < 5) give_up("HOST PORT GROUP TOPIC connections=N queues=N");
    int connections = (int) option(count, words, "connections", 1), queues = (int) option(count, words, "queues", 1);
    if (connections < 1 || queues < 1) give_up("a number is out of range");
    Idler *idlers = calloc(connections, sizeof *idlers);
    struct epoll_event events[EVENTS], input = { .events = EPOLLIN, .data.ptr = NULL };
    int epoll = epoll_create1(0);
    for (int n = 0; n < connections; n++) {
        idlers[n].queue = n % queues;
        join(epoll, &idlers[n].wire, &idlers[n], words[1], words[2], IN_BYTES);
        wait_again(epoll, &idlers[n], words);
    }
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &input);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int n = 0; n < ready; n++) {
            Idler *idler = events[n].data.ptr;
            if (!idler) return 0;
            if (events[n].events & EPOLLOUT) push(epoll, &idler->wire, idler);
            if (events[n].events & ~EPOLLOUT) take(epoll, idler, words);
        }
    }
}
