"""SendChecks: the fields of send requests, and Apache's checks of which topics clients may send to.

Stores nothing. Loop thread.
"""

import random
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables.topics import NOT_COMPACTED, InvalidTopic, TopicConfig, TopicTable

V1 = {
    "topic": "topic",
    "default": "defaultTopic",
    "default_queues": "defaultTopicQueueNums",
    "queue": "queueId",
    "sys_flag": "sysFlag",
    "born": "bornTimestamp",
    "flag": "flag",
    "properties": "properties",
    "reconsume": "reconsumeTimes",
    "unit": "unitMode",
    "batch": "batch",
    "group": "producerGroup",
    "retries_max": "maxReconsumeTimes",
}
V2 = dict(zip(V1, "bcdefghijkmal", strict=True))
LONG_NAMES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
RETRY_LIMIT_SINCE_VERSION = 121
"""Clients of this version (3.4.9) and later send their own limit of retries."""

NOT_SENDABLE = frozenset(
    (
        name_rules.SCHEDULE_TOPIC,
        name_rules.HALF_TOPIC,
        name_rules.OP_HALF_TOPIC,
        name_rules.DISCARD_TOPIC,
        name_rules.SELF_TEST_TOPIC,
        name_rules.OFFSET_MOVED_TOPIC,
    )
)


def client_retry_limit(request: RemotingCommand, field: str) -> int | None:
    """The client's limit of retries; None if it sends none or is too old to send one."""
    if request.version < RETRY_LIMIT_SINCE_VERSION or field not in request.ext:
        return None
    return request.integer(field, 32)


class SendRequest(NamedTuple):
    """The fields of all send requests, with their types checked."""

    group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    batch: bool
    retries_max: int | None

    @staticmethod
    def of(request: RemotingCommand) -> "SendRequest":
        key = V1 if request.code in LONG_NAMES else V2
        group = request.text(key["group"])
        topic = request.text(key["topic"])
        retried = topic.startswith(name_rules.RETRY_PREFIX)
        return SendRequest(
            group=group,
            topic=topic,
            default_topic=request.text(key["default"]),
            default_queues=request.integer(key["default_queues"], 32),
            queue_id=request.integer(key["queue"], 32),
            sys_flag=request.integer(key["sys_flag"], 32),
            born_ms=request.integer(key["born"]),
            flag=request.integer(key["flag"], 32),
            properties=request.text_or(key["properties"], ""),
            reconsume_times=request.integer_or(key["reconsume"], 0, 32),
            unit_mode=request.boolean_or(key["unit"], False),
            batch=request.boolean_or(key["batch"], False),
            retries_max=client_retry_limit(request, key["retries_max"]) if retried else None,
        )


class SendChecks:
    def __init__(self, topics: TopicTable, config: Config, clock: Clock) -> None:
        self._topics = topics
        self._config = config
        self._clock = clock

    def topic(self, send_request: SendRequest, peer: Peer) -> TopicConfig:
        """The topic to store in, created if it does not exist. Checks in Apache's order. Refusal."""
        options = self._config.options
        if self._clock.now_ms() < options.accept_sends_from_ms:
            remark = f"broker unable to service, until {options.accept_sends_from_ms}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        topic = self._topics.get(send_request.topic)
        if topic is not None and topic.order and not options.broker_permission & name_rules.PERM_WRITE:
            ip = options.broker_ip or peer.local[0]
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] sending message is forbidden")
        fault = name_rules.topic_fault(send_request.topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if send_request.topic in NOT_SENDABLE:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{send_request.topic}] is forbidden."
            )
        if topic is not None and topic.is_refused:
            remark = f"Sending message to topic[{topic.name}] is forbidden: it {NOT_COMPACTED}."
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        topic = topic or self._created(send_request)
        if send_request.queue_id >= max(topic.read_queues, topic.write_queues):
            producer = f"Producer: {peer.remote[0]}:{peer.remote[1]}"
            remark = f"request queueId[{send_request.queue_id}] is illegal, {_described(topic)} {producer}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return topic

    def _created(self, send_request: SendRequest) -> TopicConfig:
        sys_flag = name_rules.UNIT_FLAG if send_request.unit_mode else 0
        try:
            topic = self._topics.create_by_send(
                send_request.topic, send_request.default_topic, send_request.default_queues, sys_flag
            )
        except InvalidTopic as refused:
            raise Refusal(ResponseCode.SYSTEM_BUSY, str(refused)) from None
        if topic is None:
            remark = f"topic[{send_request.topic}] not exist, apply first please!"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        return topic


def queue_of(send_request: SendRequest, topic: TopicConfig) -> int:
    """The queue that the sender names, else a random one."""
    return (
        send_request.queue_id if send_request.queue_id >= 0 else random.randrange(max(topic.write_queues, 1))
    )


def _described(topic: TopicConfig) -> str:
    """The topic as Java prints it."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for letter, bit in (
            ("R", name_rules.PERM_READ),
            ("W", name_rules.PERM_WRITE),
            ("X", name_rules.PERM_INHERIT),
        )
    )
    attributes = ", ".join(f"{key}={value}" for key, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queues}, "
        f"writeQueueNums={topic.write_queues}, perm={perm}, topicFilterType={topic.filter_type}, "
        f"topicSysFlag={topic.sys_flag}, "
        f"order={str(topic.order).lower()}, attributes={{{attributes}}}]"
    )
