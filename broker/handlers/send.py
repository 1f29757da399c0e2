"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): checks, topic creation, staging. Loop thread.

What belongs to later work (delay, timers, transactions, retries) is refused with a clear error, never stored as a
plain message.
"""

import random
from typing import NamedTuple

from firearrow._native.store.store import MessageStore, Placed, PutRefused, PutStatus
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.errors import Refusal, with_faq
from firearrow.broker.messageids import UniqueIds, host_bytes, offset_id
from firearrow.broker.peer import Peer, Routes
from firearrow.broker.services.turn import Turn
from firearrow.broker.stats import Stats
from firearrow.broker.tables import names
from firearrow.broker.tables.topics import TopicConfig, TopicRefused, TopicTable

V1 = {
    "topic": "topic", "default": "defaultTopic", "default_queues": "defaultTopicQueueNums", "queue": "queueId",
    "sys_flag": "sysFlag", "born": "bornTimestamp", "flag": "flag", "properties": "properties",
    "reconsume": "reconsumeTimes", "unit": "unitMode", "batch": "batch", "group": "producerGroup",
}  # fmt: skip
V2 = dict(zip(V1, "bcdefghijkma", strict=True))

COMPRESSED, MULTI_TAGS, TRANSACTION_BITS, COMPRESSION_BITS = 0x1, 0x2, 0xC, 0x700
SYS_FLAG_KEPT = COMPRESSED | MULTI_TAGS | COMPRESSION_BITS

NOT_SENDABLE = frozenset(
    (
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        names.SELF_TEST_TOPIC,
        names.OFFSET_MOVED_TOPIC,
    )
)

LATER = {
    "DELAY": "delayed messages",
    "TIMER_DELAY_SEC": "timer messages",
    "TIMER_DELAY_MS": "timer messages",
    "TIMER_DELIVER_MS": "timer messages",
}


class SendRequest(NamedTuple):
    """The fields of all three codes, checked for their types."""

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

    @staticmethod
    def of(request: RemotingCommand) -> "SendRequest":
        key = V1 if request.code == RequestCode.SEND_MESSAGE else V2
        request.text(key["group"])
        return SendRequest(
            topic=request.text(key["topic"]),
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
        )


def properties_of(text: str) -> dict[str, str]:
    """`name 0x01 value 0x02 …`; pieces without a name, a value or 0x01 are dropped, the last of equal names wins."""
    pairs = (piece.partition("\x01") for piece in text.split("\x02"))
    return {name: value for name, separator, value in pairs if separator and name and value}


def properties_text(pairs: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode("utf-8", "replace")


class SendHandler:
    def __init__(
        self,
        store: MessageStore,
        turn: Turn,
        topics: TopicTable,
        config: Config,
        clock: Clock,
        stats: Stats,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._turn = turn
        self._topics = topics
        self._config = config
        self._clock = clock
        self._stats = stats
        self._store_host = store_host
        self._unique_ids = UniqueIds(store_host[:-4])

    def routes(self) -> Routes:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: RemotingCommand, peer: Peer) -> None:
        if not request.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body")
        message = SendRequest.of(request)
        options = self._config.options
        marks = {"MSG_REGION": options.region_id, "TRACE_ON": "true" if options.trace_on else "false"}
        try:
            topic = self._checked(message, peer)
            queue_id = (
                message.queue_id if message.queue_id >= 0 else random.randrange(max(topic.write_queues, 1))
            )
            if message.batch:
                self._put_batch(request, peer, message, topic, queue_id, marks)
            else:
                self._put(request, peer, message, topic, queue_id, marks)
        except Refusal as refusal:
            refusal.ext = marks
            self._stats.put_failed += 1
            raise
        except PutRefused as refused:
            self._stats.put_failed += 1
            raise Refusal(*self._put_fault(refused), marks) from None

    def _checked(self, message: SendRequest, peer: Peer) -> TopicConfig:
        """The topic to store in, made if need be; the checks stand in Apache's order."""
        options = self._config.options
        if self._clock.now_ms() < options.accept_sends_from_ms:
            remark = f"broker unable to service, until {options.accept_sends_from_ms}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        topic = self._topics.get(message.topic)
        if topic is not None and topic.order and not options.broker_permission & names.PERM_WRITE:
            ip = options.broker_ip or peer.local[0]
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] sending message is forbidden")
        fault = names.topic_fault(message.topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if message.topic in NOT_SENDABLE:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{message.topic}] is forbidden."
            )
        if message.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
            raise _later("retries and dead letters")
        if message.sys_flag & TRANSACTION_BITS:
            raise _later("transactions")
        topic = topic or self._created(message)
        if message.queue_id >= max(topic.read_queues, topic.write_queues):
            producer = f"Producer: {peer.remote[0]}:{peer.remote[1]}"
            remark = f"request queueId[{message.queue_id}] is illegal, {_described(topic)} {producer}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return topic

    def _created(self, message: SendRequest) -> TopicConfig:
        sys_flag = names.UNIT_FLAG if message.unit_mode else 0
        try:
            topic = self._topics.create_by_send(
                message.topic, message.default_topic, message.default_queues, sys_flag
            )
        except TopicRefused as refused:
            raise Refusal(ResponseCode.SYSTEM_BUSY, str(refused)) from None
        if topic is None:
            remark = f"topic[{message.topic}] not exist, apply first please!"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        return topic

    def _put(
        self,
        request: RemotingCommand,
        peer: Peer,
        message: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        marks: dict[str, str],
    ) -> None:
        properties = properties_of(message.properties)
        _refuse_later(properties)
        properties.pop("POP_CK", None)
        properties.pop("INNER_MULTI_QUEUE_OFFSET", None)
        unique_id = properties.get("UNIQ_KEY") or self._unique_ids.next(self._clock.now_ms())
        properties["UNIQ_KEY"] = unique_id
        properties |= marks
        properties["CLUSTER"] = self._config.options.cluster_name
        placed = self._store.put(
            message.topic,
            queue_id,
            request.body,
            properties_text(properties),
            flag=message.flag,
            sys_flag=_kept(message.sys_flag, topic),
            born_timestamp=message.born_ms,
            born_host=host_bytes(*peer.remote),
            store_host=self._store_host,
            reconsume_times=message.reconsume_times,
            now_ms=self._clock.now_ms(),
        )
        self._park(request, peer, message, queue_id, placed, marks | {"transactionId": unique_id}, properties)

    def _put_batch(
        self,
        request: RemotingCommand,
        peer: Peer,
        message: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        marks: dict[str, str],
    ) -> None:
        properties = properties_of(message.properties)
        _refuse_later(properties)
        placed = self._store.put_batch(
            message.topic,
            queue_id,
            request.body,
            sys_flag=_kept(message.sys_flag, topic),
            born_timestamp=message.born_ms,
            born_host=host_bytes(*peer.remote),
            store_host=self._store_host,
            reconsume_times=message.reconsume_times,
            now_ms=self._clock.now_ms(),
        )
        if unique_id := properties.get("UNIQ_KEY"):  # clients of 4.x give a batch none
            marks["transactionId"] = unique_id
        self._park(request, peer, message, queue_id, placed, marks, properties)

    def _park(
        self,
        request: RemotingCommand,
        peer: Peer,
        message: SendRequest,
        queue_id: int,
        placed: Placed,
        ext: dict[str, str],
        properties: dict[str, str],
    ) -> None:
        ext["msgId"] = ",".join(offset_id(self._store_host, offset) for offset in placed.physical_offsets)
        ext["queueId"] = str(queue_id)
        ext["queueOffset"] = str(placed.queue_offset)
        answer = None if request.is_oneway else request.answer(ext=ext)
        waits = properties.get("WAIT", "true").lower() != "false"
        self._turn.park(placed.end, (message.topic, queue_id), peer, answer, waits=waits)
        self._stats.put(message.topic, len(placed.physical_offsets), placed.end - placed.physical_offset)

    def _put_fault(self, refused: PutRefused) -> tuple[int, str]:
        if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
            return (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now. The store has stopped taking messages.",
            )
        return ResponseCode.MESSAGE_ILLEGAL, (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.options.max_message_bytes}B, msg properties length limit 32KB."
        )


def _described(topic: TopicConfig) -> str:
    """The topic as Java prints it."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for letter, bit in (("R", names.PERM_READ), ("W", names.PERM_WRITE), ("X", names.PERM_INHERIT))
    )
    attributes = ", ".join(f"{key}={value}" for key, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queues}, writeQueueNums={topic.write_queues}, "
        f"perm={perm}, topicFilterType={topic.filter_type}, topicSysFlag={topic.sys_flag}, "
        f"order={str(topic.order).lower()}, attributes={{{attributes}}}]"
    )


def _kept(sys_flag: int, topic: TopicConfig) -> int:
    multi = MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0
    return sys_flag & SYS_FLAG_KEPT | multi


def _later(what: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{what} are not supported by this broker yet")


def _refuse_later(properties: dict[str, str]) -> None:
    for name, what in LATER.items():
        if properties.get(name) not in (None, "0"):
            raise _later(what)
    if properties.get("TRAN_MSG", "").lower() == "true":
        raise _later("transactions")
