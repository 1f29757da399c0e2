"""Creates, changes, deletes and lists topics, their statistics, and clean-up of unused files. Loop thread.

- `TopicsHandler`: topics (17, 18, 215, 21, 351, 305), statistics of a topic (202).
- `CleaningHandler`: queues of deleted topics (316), expired queue files (306), expired log files (329).
"""

import logging
from collections.abc import Callable

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps, loads_body
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.protocol.name_rules import LMQ_PREFIX
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.attributes import InvalidAttribute, parsed
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.paging import page, too_large
from firearrow.broker.tables.topics import FILTER_TYPES, InvalidTopic, TopicConfig, TopicTable

log = logging.getLogger("firearrow.topics")

COUNTED_GROUPS_MAX, NAMED_GROUPS_MAX = 1000, 10
"""Groups whose unread messages are counted, and that are named, when read queues are taken away."""
LIST_MAX = 5_000
"""Topics of one UPDATE_AND_CREATE_TOPIC_LIST."""

NOT_SET = "not set any response code"
"""Apache's remark after a topic was created; it forgets to clear it."""


class TopicsHandler:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        deleted: DeletedTopics,
        config: Config,
        clock: Clock,
        stats: Stats,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._deleted = deleted
        self._config = config
        self._stats = stats
        self._mapping_version = DataVersion(timestamp=clock.now_ms())

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get_config,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_list,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats_info,
        }

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        self._check_name(topic)
        filter_type = request.text("topicFilterType")
        if filter_type not in FILTER_TYPES:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{filter_type[:64]}] value invalid")
        try:
            attributes = parsed(request.text_or("attributes", ""))
        except InvalidAttribute as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        config = TopicConfig(
            topic,
            request.integer("readQueueNums", 32),
            request.integer("writeQueueNums", 32),
            request.integer("perm", 32),
            filter_type,
            request.integer_or("topicSysFlag", 0, 32),
            request.boolean_or("order", False),
            attributes,
        )
        self._apply([config])
        return request.answer(remark=NOT_SET)

    def update_list(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Create or change all topics, or none; Apache changes none if one of them is unchanged."""
        try:
            raw = json_fields.items(
                json_fields.members(loads_body(request.body), "body").get("topicConfigList"),
                "topicConfigList",
            )
            if len(raw) > LIST_MAX:
                raise ValueError(f"topicConfigList of {len(raw)} topics, at most {LIST_MAX}")
            configs = [TopicConfig.from_object(value) for value in raw]
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for config in configs:
            self._check_name(config.name)
        self._apply(configs)
        return request.answer(remark=NOT_SET)

    def delete(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Delete a topic, its queues, offsets and POP retry topics; no error if it does not exist."""
        topic = request.text("topic")
        if not topic.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_system(topic)
        retries = [f"{name_rules.RETRY_PREFIX}{group}_{topic}" for group in self._offsets.groups_of(topic)]
        for name in (topic, *(retry for retry in retries if retry in self._topics)):
            _note_deletion(self._deleted, self._store, name)
            self._topics.delete(name)
            self._offsets.remove_topic(name)
            self._store.drop_topic(name)
            self._stats.forget_topic(name)
        return request.answer()

    def get_all(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """All topics, or a page if the request has paging fields."""
        topics = self._topics
        names = list(topics)
        if self._config.options.split_metadata and request.ext.keys() & {
            "dataVersion",
            "topicSeq",
            "maxTopicNum",
        }:
            seen, begin = request.text_or("dataVersion", ""), request.integer_or("topicSeq", 0, 32)
            size = self._config.options.split_metadata_size
            names = page(
                names, topics.version, seen, begin, min(size, request.integer_or("maxTopicNum", size, 32))
            )
        configs = [(name, topics.get(name)) for name in names]
        body = {
            "dataVersion": topics.version.to_object(),
            "mappingDataVersion": self._mapping_version.to_object(),
            "topicConfigTable": {name: config.to_object() for name, config in configs if config is not None},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        text = dumps(body)
        fault = too_large(text)
        if fault is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, fault)
        return request.answer(ext={"totalTopicNum": str(len(topics))}, body=text)

    def get_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.answer(body=dumps(config.to_object()))

    def system_list(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=dumps({"topicList": self._topics.system_names()}))

    def stats_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        broker = self._config.options.broker_name
        count = max(config.read_queues, config.write_queues)
        table = {MessageQueue(topic, broker, n): self._queue_stats(topic, n) for n in range(count)}
        windows = self._stats.view("TOPIC_PUT_NUMS", topic)
        tps = 0.0 if windows is None else windows[0].tps
        return request.answer(body=dumps({"offsetTable": table, "topicPutTps": tps}))

    def _queue_stats(self, topic: str, queue_id: int) -> dict[str, int]:
        end = self._store.reader.max_offset(topic, queue_id)
        return {
            "lastUpdateTimestamp": self._store.reader.store_time(topic, queue_id, end - 1) if end > 0 else 0,
            "maxOffset": end,
            "minOffset": max(0, self._store.reader.min_offset(topic, queue_id)),
        }

    def _apply(self, configs: list[TopicConfig]) -> None:
        if not self._config.options.mixed_message_type and any(
            config.attributes.get("+message.type") == "MIXED" for config in configs
        ):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        before = {config.name: self._topics.get(config.name) for config in configs}
        try:
            self._topics.update_all(configs)
        except InvalidAttribute as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except InvalidTopic as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        for config in configs:
            known = before[config.name]
            if known is not None and known.read_queues > config.read_queues:
                self._warn_of_unread(config, known.read_queues)

    def _warn_of_unread(self, config: TopicConfig, read_queues: int) -> None:
        """Report what no consumer reads any more, as it had more read queues; Apache's broker takes them away
        silently."""
        reader, topic = self._store.reader, config.name
        leaving = {}
        for number in range(config.read_queues, read_queues):
            end, begin = reader.max_offset(topic, number), max(0, reader.min_offset(topic, number))
            if end > begin:
                leaving[number] = begin, end
        groups = self._offsets.groups_of(topic)
        unread = {}
        for group in groups[:COUNTED_GROUPS_MAX]:
            offsets = self._offsets.of(group, topic) or {}
            count = sum(max(end - max(offsets.get(n, 0), begin), 0) for n, (begin, end) in leaving.items())
            if count:
                unread[group] = count
        if not leaving or (groups and not unread):
            return
        most = sorted(unread.items(), key=lambda each: each[1], reverse=True)
        log.warning(
            "topic %s has %d read queues now, it had %d: no consumer is given the others any more, which hold %d "
            "messages; unread: %s; `firearrow topic set %s --read-queues %d` gives them back",
            topic,
            config.read_queues,
            read_queues,
            sum(end - begin for begin, end in leaving.values()),
            ", ".join(f"{count} of group {group}" for group, count in most[:NAMED_GROUPS_MAX])
            or "all, no group reads it",
            topic,
            read_queues,
        )

    def _check_name(self, topic: str) -> None:
        fault = name_rules.topic_fault(topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        self._check_system(topic)

    def _check_system(self, topic: str) -> None:
        if self._config.options.check_system_topics and self._topics.is_system(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)


class CleaningHandler:
    """`delete_expired()` and `clean_queues()` start retention, which continues after the answer."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        deleted: DeletedTopics,
        *,
        delete_expired: Callable[[], None],
        clean_queues: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._deleted = deleted
        self._delete_expired = delete_expired
        self._clean_queues = clean_queues

    def routes(self) -> Routes:
        return {
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_segments,
        }

    def clean_unused_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        for topic in {topic for topic, _ in self._store.reader.queues()}:
            kept = topic in self._topics or self._topics.is_system(topic) or topic.startswith(LMQ_PREFIX)
            if not kept:
                _note_deletion(self._deleted, self._store, topic)
                self._store.drop_topic(topic)
        return request.answer()

    def clean_queues(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._clean_queues()
        return request.answer()

    def delete_segments(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._delete_expired()
        return request.answer()


def _note_deletion(deleted: DeletedTopics, store: MessageStore, topic: str) -> None:
    """Note where the queues end, staged messages included. OSError: they cannot be written."""
    store.write()
    deleted.note(topic, store.queue_ends(topic), store.written)
