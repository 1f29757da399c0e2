/* Long polls: encodes a pull request; the codes of its responses. One thread. */
#ifndef BENCH_PULLING_H
#define BENCH_PULLING_H

#include "answers.h"
#include "connection.h"

enum { PULL_FOUND = 0, PULL_NOT_FOUND = 19, PULL_AGAIN = 20, PULL_WAIT_MS = 15000, PULL_TEXT = 1024 };

/* A pull that waits at the queue's end, contains the subscription, and commits its offset. */
static inline void ask_pull(Connection *connection, const char *group, const char *topic, int queue, int64_t queue_offset, int opaque)
{
    char text[PULL_TEXT];
    int length = snprintf(text, sizeof text,
        "{\"code\":11,\"language\":\"JAVA\",\"version\":317,\"opaque\":%d,\"flag\":0,\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{"
        "\"consumerGroup\":\"%s\",\"topic\":\"%s\",\"queueId\":\"%d\",\"queueOffset\":\"%lld\",\"maxMsgNums\":\"32\",\"sysFlag\":\"7\","
        "\"commitOffset\":\"%lld\",\"suspendTimeoutMillis\":\"%d\",\"subscription\":\"*\",\"subVersion\":\"0\",\"expressionType\":\"TAG\"}}",
        opaque, group, topic, queue, (long long) queue_offset, (long long) queue_offset, PULL_WAIT_MS);
    if (length >= (int) sizeof text) die("the names of group and topic are too long together");
    uint32_t words[2] = { htonl(4 + length), htonl(length) };
    unsigned char *at = reserve_out(connection, 8 + length);
    memcpy(at, words, 8);
    memcpy(at + 8, text, length);
}

#endif
