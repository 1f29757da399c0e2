# Layout of Apache RocketMQ's store files. All numbers are big-endian.
#
# COMMIT LOG RECORD (V1, IPv4 hosts; an IPv6 host takes 12 bytes more, V2 has an i16 topic length)
#
#   0          4        8        12       16     20           28           36       40
#   +----------+--------+--------+--------+------+------------+------------+--------+
#   | size     | magic  | crc    | queue  | flag | queue      | physical   | sys    |
#   |          |        | (body) | id     |      | offset     | offset     | flag   |
#   +----------+--------+--------+--------+------+------------+------------+--------+
#   40         48           56         64           72         76          84
#   +----------+------------+----------+------------+----------+-----------+----------------+
#   | born     | born host  | stored   | store host | times    | prepared  | i32 + body     |
#   | time     | ip + port  | time     | ip + port  | consumed | offset    | u8 + topic     |
#   +----------+------------+----------+------------+----------+-----------+ i16 + properties
#
# END OF A SEGMENT   i32 bytes left, i32 BLANK_MAGIC; the last 8 bytes of a segment hold no record.
#
# CONSUME QUEUE ENTRY (20 bytes)   i64 physical offset, i32 record size, i64 tags code
#   before a queue's first entry in a file: (0, PRE_BLANK_SIZE, 0)
#
# BATCH CONSUME QUEUE ENTRY (46 bytes)   the 20 bytes of a consume queue entry, i64 store time, i64 queue
#   offset of the first message, i16 messages, i32 compacted offset (-1), i32 reserved (0)
#
# INDEX FILE   header 40 | slots 4 × n | entries 20 × m; entry 0 is never used, the count starts at 1
#   header   i64 begin time, i64 end time, i64 begin offset, i64 end offset, i32 slots used, i32 count
#   slot     i32 number of the newest entry of its chain, 0 none
#   entry    i32 key hash, i64 physical offset, i32 seconds since begin time, i32 previous entry of the chain

cdef enum:
    MAGIC_V1 = -626843481         # 0xDAA320A7
    MAGIC_V2 = -626843477         # 0xDAA320AB
    MAGIC_BLANK = -875286124      # 0xCBD43194

cdef enum:
    AT_SIZE = 0
    AT_MAGIC = 4
    AT_CRC = 8
    AT_QUEUE_ID = 12
    AT_FLAG = 16
    AT_QUEUE_OFFSET = 20
    AT_PHYSICAL_OFFSET = 28
    AT_SYS_FLAG = 36
    AT_BORN_TIME = 40
    AT_BORN_HOST = 48
    HOST_V4_BYTES = 8
    HOST_V6_BYTES = 20
    AFTER_BORN_HOST_STORE_TIME = 0
    AFTER_BORN_HOST_STORE_HOST = 8
    AFTER_STORE_HOST_RECONSUME = 0
    AFTER_STORE_HOST_PREPARED = 4
    AFTER_STORE_HOST_BODY = 12
    RECORD_FIXED_BYTES = 91       # V1, both hosts IPv4; body, topic and properties empty
    RECORD_END_BYTES = 8          # kept free at the end of a segment

cdef enum:
    SYS_COMPRESSED = 0x1
    SYS_MULTI_TAGS = 0x2
    SYS_TRANSACTION = 0xC
    SYS_PREPARED = 0x4
    SYS_COMMIT = 0x8
    SYS_ROLLBACK = 0xC
    SYS_BORN_V6 = 0x10
    SYS_STORE_V6 = 0x20
    SYS_NEED_UNWRAP = 0x40
    SYS_INNER_BATCH = 0x80

cdef enum:
    ENTRY_BYTES = 20
    ENTRY_AT_SIZE = 8
    ENTRY_AT_TAGS = 12
    PRE_BLANK_SIZE = 0x7FFFFFFF
    BATCH_ENTRY_BYTES = 46
    BATCH_AT_STORE_TIME = 20
    BATCH_AT_BASE = 28
    BATCH_AT_COUNT = 36
    BATCH_AT_COMPACTED = 38
    BATCH_AT_RESERVED = 42
    BATCH_COUNT_MAX = 32767
    BATCH_ITEM_BYTES_MIN = 22     # of a message in an inner batch

cdef enum:
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20
    INDEX_AT_BEGIN_TIME = 0
    INDEX_AT_END_TIME = 8
    INDEX_AT_BEGIN_OFFSET = 16
    INDEX_AT_END_OFFSET = 24
    INDEX_AT_SLOTS_USED = 32
    INDEX_AT_COUNT = 36
    INDEX_ENTRY_AT_OFFSET = 4
    INDEX_ENTRY_AT_SECONDS = 12
    INDEX_ENTRY_AT_PREVIOUS = 16

cdef enum:
    # in properties and in the property KEYS (Apache: MessageDecoder, MessageConst)
    NAME_VALUE_SEPARATOR = 0x01
    PROPERTY_SEPARATOR = 0x02
    KEY_SEPARATOR = 0x20

cdef enum:
    PROPERTIES_BYTES_MAX = 32767
    TOPIC_V1_BYTES_MAX = 127
    TOPIC_BYTES_MAX = 255
    RECORD_OVER_BODY_BYTES = 65536  # a record may exceed maxMessageSize by this
    CHECKPOINT_BYTES = 4096

cdef extern from *:
    """
    _Static_assert(0xDAA320A7u == (unsigned) -626843481, "magic V1");
    _Static_assert(0xDAA320ABu == (unsigned) -626843477, "magic V2");
    _Static_assert(0xCBD43194u == (unsigned) -875286124, "blank magic");
    _Static_assert(48 + 8 + 8 + 8 + 12 + 4 + 1 + 2 == 91, "fixed part of a V1 record");
    """
