"""Message: a message to put into the store, with its properties as a dict. Knows no table and no store."""

from dataclasses import dataclass, field

from firearrow._native.store.log.record import Record

INNER_BATCH = 0x40 | 0x80
"""The bits of a message that has others as its body: NEED_UNWRAP_FLAG and INNER_BATCH_FLAG."""


class Property:
    """Names of properties that the broker reads or writes (Apache: MessageConst)."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QUEUE_ID = "REAL_QID"
    TRANSACTION_PREPARED = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    TRACE_CONTEXT = "TRACE_CONTEXT"
    UNIQUE_KEY = "UNIQ_KEY"
    CLUSTER = "CLUSTER"
    BORN_TIMESTAMP = "BORN_TIMESTAMP"
    SHARDING_KEY = "__SHARDINGKEY"
    PRIORITY = "_SYS_MSG_PRIORITY_"
    LITE_TOPIC = "__LITE_TOPIC"
    CHECK_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID = "__transactionId__"
    TRANSACTION_CHECKS = "TRANSACTION_CHECK_TIMES"
    CORRELATION_ID = "CORRELATION_ID"
    INSTANCE_ID = "INSTANCE_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    POP_CHECK_POINT = "POP_CK"
    FIRST_POP_TIME = "1ST_POP_TIME"
    ORIGIN_GROUP = "ORIGIN_GROUP"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    INNER_NUM = "INNER_NUM"
    INNER_BASE = "INNER_BASE"
    MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
    MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_OUT_MS = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
    TIMER_DELETE_KEY = "TIMER_DEL_UNIQKEY"


def properties_of(text: str) -> dict[str, str]:
    """Parse `name 0x01 value 0x02 …`; incomplete pairs are dropped, the last of equal names wins."""
    pairs = (pair.partition("\x01") for pair in text.split("\x02"))
    return {name: value for name, separator, value in pairs if separator and name and value}


def properties_text(pairs: dict[str, str]) -> bytes:
    text = "\x02".join(map("\x01".join, pairs.items()))
    return (text and text + "\x02").encode("utf-8", "replace")


@dataclass(slots=True)
class Message:
    """Times in ms; hosts are 4 or 16 address bytes and an i32 port, empty for this broker."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = b""
    store_host: bytes = b""
    reconsume_times: int = 0
    prepared_offset: int = 0

    @staticmethod
    def of_record(record: Record, properties: dict[str, str] | None = None) -> "Message":
        """The message of a stored record, to be put again. `properties`: the record's, if they are known; they become
        the message's."""
        return Message(
            topic=record.topic,
            queue_id=record.queue_id,
            body=record.body,
            properties=record.properties if properties is None else properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_ms=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
        )
