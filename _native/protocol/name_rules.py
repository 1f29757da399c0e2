"""Names with a special meaning, and which names topics and groups may have. Constants and pure functions.

`BROKER_OWN` and `RETRIED` are dropped when a stored message is sent again.
"""

import re

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
LITE_SEPARATOR = "$"
LITE_PREFIX = LMQ_PREFIX + LITE_SEPARATOR
"""Of the LMQ of a lite topic: `%LMQ%$TOPIC$LITE_TOPIC`."""
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"

SYSTEM_TOPICS = frozenset(
    (
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        DISCARD_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    )
)
PREDEFINED_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
SYSTEM_GROUPS = frozenset(
    (
        "DEFAULT_PRODUCER",
        "DEFAULT_CONSUMER",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        *PREDEFINED_GROUPS,
    )
)

BROKER_OWN = frozenset(
    {
        "MSG_REGION",
        "TRACE_ON",
        "CLUSTER",
        "__CRC32#",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "CONSUME_START_TIME",
        "REAL_TOPIC",
        "REAL_QID",
        "DELAY",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_DEL_UNIQKEY",
        "TRAN_MSG",
        "PGROUP",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "INNER_NUM",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
    }
)
"""Properties that brokers set, or that would take effect again: delays, timers, transactions, POP."""
RETRIED = frozenset(
    {
        "RETRY_TOPIC",
        "ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "ORIGIN_GROUP",
    }
)
"""Properties that a message gets on its way through retries to the dead letters: dropped when it starts over."""

TOPIC_CHARS_MAX = 127
RETRY_TOPIC_CHARS_MAX = 255
GROUP_CHARS_MAX = 120
LITE_TOPIC_CHARS_MAX = 64

PERM_PRIORITY, PERM_READ, PERM_WRITE, PERM_INHERIT = 8, 4, 2, 1
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2

ALPHABET = "^[%|a-zA-Z0-9_-]+$"
_ALPHABET = re.compile(r"[%|a-zA-Z0-9_-]+")
_LITE_ALPHABET = re.compile(r"[a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def group_of_retry(topic: str) -> str:
    """The group of a retry topic of push consumers."""
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]


def topic_fault(topic: str) -> str | None:
    """The fault of a topic's name, in Apache's words; None if it is valid."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _ALPHABET.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only {ALPHABET}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > RETRY_TOPIC_CHARS_MAX:
            kind = f"The specified topic is DLQ or Retry topic: {topic}, and it's"
            return f"{kind} longer than topic max length: {RETRY_TOPIC_CHARS_MAX}"
    elif len(topic) > TOPIC_CHARS_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_CHARS_MAX}"
    return None


def own_topic_fault(topic: str) -> str | None:
    """The same for topics that the broker creates itself: POP's v2 retry topics have a + in their name."""
    return topic_fault(topic.replace("+", "_", 1) if topic.startswith(RETRY_PREFIX) else topic)


def group_fault(group: str) -> str | None:
    """The fault of a group's name, in Apache's words; None if it is valid."""
    if not group.strip():
        return "The specified group is blank."
    if not _ALPHABET.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, allowing only {ALPHABET}"
    if len(group) > GROUP_CHARS_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_CHARS_MAX}"
    return None


def lite_fault(lite_topic: str) -> str | None:
    """The fault of a lite topic's name, in Apache's words; None if it is valid."""
    if not lite_topic.strip():
        return "lite topic cannot be the char sequence of whitespace"
    if len(lite_topic) > LITE_TOPIC_CHARS_MAX:
        return f"lite topic exceed the max size {LITE_TOPIC_CHARS_MAX}"
    if not _LITE_ALPHABET.fullmatch(lite_topic):
        return "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    return None


def lite_queue(topic: str, lite_topic: str) -> str:
    """The LMQ of a lite topic."""
    return f"{LITE_PREFIX}{topic}{LITE_SEPARATOR}{lite_topic}"


def lite_names(queue: str) -> tuple[str, str]:
    """The topic and the lite topic of the LMQ of a lite topic; two empty texts if it is not one."""
    topic, _, lite_topic = queue.removeprefix(LITE_PREFIX).partition(LITE_SEPARATOR)
    if not queue.startswith(LITE_PREFIX) or not topic or not lite_topic or LITE_SEPARATOR in lite_topic:
        return "", ""
    return topic, lite_topic


def is_system_topic(topic: str) -> bool:
    """Whether the name is reserved; the topic table also knows the topics of this cluster and broker."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
