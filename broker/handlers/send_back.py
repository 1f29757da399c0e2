"""CONSUMER_SEND_MSG_BACK (36): retries a message that a consumer could not consume. Loop thread."""

from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore, PutRefused
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.lmq import lite_topic_of, offset_in
from firearrow.broker.append.retry_routing import RetryRouting, count_retry
from firearrow.broker.append.send_checks import client_retry_limit
from firearrow.broker.base import property_rules
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.message_ids import offset_id
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.topics import TopicConfig, TopicTable


class Place(NamedTuple):
    """Where a message is. `lite_topic`: whose queue these are; empty: the topic's."""

    topic: str
    queue_id: int
    queue_offset: int
    lite_topic: str

    def is_of(self, record: Record) -> bool:
        """Whether the record is there."""
        if not self.lite_topic:
            return self[:3] == (record.topic, record.queue_id, record.queue_offset)
        queue = name_rules.lite_queue(self.topic, self.lite_topic)
        return record.topic == self.topic and offset_in(record.properties, queue) == self.queue_offset


class SendBackHandler:
    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        retries: RetryRouting,
        config: Config,
        stats: Stats,
        quotas: QuotaCheck,
        topics: TopicTable,
    ) -> None:
        self._store = store
        self._appender = appender
        self._retries = retries
        self._config = config
        self._stats = stats
        self._quotas = quotas
        self._topics = topics

    def routes(self) -> Routes:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        offset, level = request.integer("offset"), request.integer("delayLevel", 32)
        unit_mode, retries_max = (
            request.boolean_or("unitMode", False),
            client_retry_limit(request, "maxReconsumeTimes"),
        )
        group = self._retries.group(request.text("group"))
        options = self._config.options
        if not options.broker_permission & name_rules.PERM_WRITE:
            ip = options.broker_ip or peer.local[0]
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] sending message is forbidden")
        if group.retry_queues <= 0:
            return request.answer()
        place = _place(request)
        if place is None and self._is_compacted(name := request.text_or("originTopic", "")):
            remark = f"messages of the compaction topic {name} cannot be sent back by their offset"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        topic = self._writable_topic(group, unit_mode)
        message = self._original(offset, place)
        message.topic, message.queue_id = topic.name, self._retries.queue_of(topic, group)
        self._retries.send_back(message, group, level, retries_max)
        answer = None if request.is_oneway else request.answer()
        try:
            put = self._appender.put_due(message, hooks=True, peer=peer, answer=answer)
        except PutRefused as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, refused.status.name) from None
        self._stats.put(message.topic, 1, put.end - put.physical_offset)
        self._quotas.sent_back(request, peer, put.end - put.physical_offset)
        count_retry(self._stats.events, message, group.name)
        return None

    def _is_compacted(self, name: str) -> bool:
        """Whether the offset that consumers have of its messages may be none of the log. When refused, clients of
        remoting send a message to the retry topic themselves."""
        topic = self._topics.get(name)
        return topic is not None and topic.is_compacted

    def _writable_topic(self, group: GroupConfig, unit_mode: bool) -> TopicConfig:
        sys_flag = name_rules.UNIT_SUB_FLAG if unit_mode else 0
        topic = self._retries.topic(name_rules.retry_topic(group.name), group.retry_queues, sys_flag)
        if not topic.writable:
            remark = f"the topic[{topic.name}] sending message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _original(self, offset: int, place: Place | None) -> Message:
        """The message to retry, with its first topic and message id in properties. `place`: where it has to be."""
        # not confirmed here: the consumer has it from the former master
        record = None
        if place is not None and self._is_compacted(place.topic):
            record = self._store.reader.compacted_record(*place[:3])
        record = record or self._store.reader.record_at(offset, unconfirmed=True)
        if record is None and place is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        found = None if record is None else decode(record, False)
        if found is None or (place is not None and not place.is_of(found)):
            raise Refusal(
                ResponseCode.NO_MESSAGE, f"the message at offset {offset} is another one, or deleted"
            )
        message = Message.of_record(found)
        message.store_host = b""
        message.prepared_offset = 0
        properties = message.properties
        # items of a batch are stored as they came
        property_rules.remove(properties, (*property_rules.NEVER_SENT, *property_rules.OF_INNER_BATCHES))
        if not found.topic.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
            properties[Property.RETRY_TOPIC] = found.topic  # whatever its sender has set
        properties.setdefault(Property.RETRY_TOPIC, found.topic)
        properties[Property.WAIT] = "false"
        if not properties.get(Property.ORIGIN_MESSAGE_ID, "").strip():
            properties[Property.ORIGIN_MESSAGE_ID] = offset_id(found.store_host, offset)
        return message


def _place(request: RemotingCommand) -> Place | None:
    """Where the message is, as clients of gRPC state it; those of remoting state its offset in the log alone."""
    if "originQueueOffset" not in request.ext:
        return None
    return Place(
        request.text("originTopic"),
        request.integer("originQueueId", 32),
        request.integer("originQueueOffset"),
        lite_topic_of(request),
    )
