/* Records in the body of a pull response (format: total size, magic, body CRC, queue, flag, queue offset, physical
 * offset, sysFlag, born time, born host, store time, store host, reconsumed, prepared, body, topic, properties).
 * All lengths are checked against the available bytes. One thread; call `fa_crc_prepare` first. */
#ifndef BENCH_RECORDS_H
#define BENCH_RECORDS_H

#include "answers.h"
#include "base/crc32.h"

enum { RECORD_HEAD = 48, HOST_V4 = 8, HOST_V6 = 20, BORN_V6 = 0x10, STORE_V6 = 0x20 };

typedef struct {
    size_t size, body_bytes;
    uint32_t crc;
    int64_t queue_offset;
    const unsigned char *body;
} RecordView;

/* Parses the record at `at`; NULL, or what is wrong with it. */
static inline const char *parse_record(const unsigned char *at, size_t available, RecordView *record)
{
    if (available < RECORD_HEAD) return "a record is incomplete";
    record->size = be32(at);
    if (record->size > available) return "a record is longer than the response";
    if (be32(at + 4) != 0xDAA320A7 && be32(at + 4) != 0xDAA320AB) return "a record has a wrong magic";
    record->crc = be32(at + 8);
    record->queue_offset = be64(at + 20);
    uint32_t flags = be32(at + 36);
    size_t hosts = (flags & BORN_V6 ? HOST_V6 : HOST_V4) + (flags & STORE_V6 ? HOST_V6 : HOST_V4);
    size_t body = RECORD_HEAD + hosts + 8 + 4 + 8 + 4;
    if (body > record->size) return "a record is too short";
    record->body_bytes = be32(at + body - 4);
    if (record->body_bytes > record->size - body) return "a body is longer than its record";
    record->body = at + body;
    return NULL;
}

static inline int is_intact(const RecordView *record)
{
    return record->crc == (fa_crc32(record->body, record->body_bytes) & 0x7FFFFFFF);
}

#endif
