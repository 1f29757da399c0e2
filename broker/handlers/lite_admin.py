"""Requests of operators about lite topics. Apache: LiteManagerProcessor. Loop thread.

GET_BROKER_LITE_INFO (200074), GET_PARENT_TOPIC_INFO (200075), GET_LITE_TOPIC_INFO (200076), GET_LITE_CLIENT_INFO
(200077), GET_LITE_GROUP_INFO (200078), TRIGGER_LITE_DISPATCH (200079). What looks at all lite topics runs in slices.
"""

import asyncio
import heapq
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import LMQ_QUEUE_ID
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.lite.service import LiteService
from firearrow.broker.lite.subscriptions import LiteClient
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.topics import TopicConfig

RETURNED_MAX = 10_000
"""Lite topics in one answer, and those whose oldest unread message is looked up."""
STEP = 1024
"""Lite topics between two turns of the loop."""
STORE_TYPE = "default"
UNKNOWN = -1


class Lag(NamedTuple):
    """What a group has not read of a lite topic. `since_ms`: when the first of it was stored; UNKNOWN: it was not
    looked up."""

    messages: int
    queue: str
    since_ms: int

    def to_object(self) -> dict[str, object]:
        return {
            "earliestUnconsumedTimestamp": self.since_ms,
            "lagCount": self.messages,
            "liteTopic": name_rules.lite_names(self.queue)[1],
        }


class LiteAdminHandler:
    def __init__(self, context: BrokerContext, service: LiteService) -> None:
        self._store = context.store
        self._reader = context.store.reader
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._offsets = context.tables.offsets
        self._config = context.config
        self._service = service

    def routes(self) -> Routes:
        return {
            RequestCode.GET_BROKER_LITE_INFO: self.broker_info,
            RequestCode.GET_PARENT_TOPIC_INFO: self.topic_info,
            RequestCode.GET_LITE_TOPIC_INFO: self.lite_topic_info,
            RequestCode.GET_LITE_CLIENT_INFO: self.client_info,
            RequestCode.GET_LITE_GROUP_INFO: self.group_info,
            RequestCode.TRIGGER_LITE_DISPATCH: self.dispatch,
        }

    def broker_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        lite = [topic for topic in map(self._topics.get, self._topics) if topic is not None and topic.is_lite]
        groups: dict[str, list[str]] = {}
        for group in map(self._groups.get, self._groups):
            if group is not None and group.lite_topic:
                groups.setdefault(group.lite_topic, []).append(group.name)
        body = {
            "cqTableSize": self._store.lmq_count,
            "currentLmqNum": self._store.lmq_count,
            "eventMapSize": len(self._service.events),
            "groupMeta": groups,
            "liteSubscriptionCount": self._service.subscriptions.count,
            "maxLmqNum": self._config.options.lmq_max,
            "offsetTableSize": len(self._offsets.table),
            "orderInfoCount": len(self._service.orders),
            "storeType": STORE_TYPE,
            "topicMeta": {topic.name: topic.lite_expiration_minutes for topic in lite},
        }
        return request.answer(body=dumps(body))

    async def topic_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = self._lite_topic(request.text_or("topic", ""))
        count, prefix = 0, name_rules.lite_queue(topic.name, "")
        for n, _ in enumerate(self._reader.last_ends(prefix)):
            count += 1
            if n % STEP == STEP - 1:
                await asyncio.sleep(0)
        body = {
            "groups": [name for name in self._groups if self._is_of(name, topic.name)],
            "liteTopicCount": count,
            "lmqNum": self._store.lmq_count,
            "topic": topic.name,
            "ttl": topic.lite_expiration_minutes,
        }
        return request.answer(body=dumps(body))

    def lite_topic_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, lite_topic = (
            self._lite_topic(request.text_or("parentTopic", "")),
            request.text_or("liteTopic", ""),
        )
        queue = name_rules.lite_queue(topic.name, lite_topic)
        end = self._reader.max_offset(queue, LMQ_QUEUE_ID)
        low = max(self._reader.min_offset(queue, LMQ_QUEUE_ID), 0) if end else 0
        clients = self._service.subscriptions.clients(queue)
        body = {
            "liteTopic": lite_topic,
            "parentTopic": topic.name,
            "shardingToBroker": True,
            "subscriber": [
                {"clientId": client.client_id, "group": client.group} for client in clients[:RETURNED_MAX]
            ],
            "topicOffset": {
                "lastUpdateTimestamp": self._reader.store_time(queue, LMQ_QUEUE_ID, end - 1) if end else 0,
                "maxOffset": end,
                "minOffset": low,
            },
        }
        return request.answer(body=dumps(body))

    def client_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, group = self._lite_topic(request.text_or("parentTopic", "")), request.text_or("group", "")
        self._group(group)
        if not self._is_of(group, topic.name):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{topic.name}] not match.")
        client_id = request.text_or("clientId", "")
        known = self._service.subscriptions.get(LiteClient(group, client_id))
        queues = [] if known is None else list(known.queues)
        body = {
            "clientId": client_id,
            "group": group,
            "lastAccessTime": UNKNOWN if known is None else known.updated_ms,
            "lastConsumeTime": 0,
            "liteTopicCount": UNKNOWN if known is None else len(queues),
            "liteTopicSet": queues[: max(min(request.integer_or("maxCount", 1000, 32), RETURNED_MAX), 0)],
            "parentTopic": topic.name,
        }
        return request.answer(body=dumps(body))

    async def group_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, lite_topic = self._lite_group(request.text("group")), request.text_or("liteTopic", "")
        body: dict[str, object] = {"group": group.name, "parentTopic": group.lite_topic}
        if lite_topic:
            queue = name_rules.lite_queue(group.lite_topic, lite_topic)
            return request.answer(
                body=dumps(body | {"liteTopic": lite_topic} | self._progress(group.name, queue))
            )
        count = max(min(request.integer_or("topK", 0, 32), RETURNED_MAX), 0)
        lags = await self._lags(group.name)
        known = [lag for lag in lags if lag.since_ms != UNKNOWN]
        by_count = heapq.nlargest(count, lags)
        by_time = heapq.nsmallest(count, known, key=lambda lag: lag.since_ms)
        body |= {
            "earliestUnconsumedTimestamp": min((lag.since_ms for lag in known), default=UNKNOWN),
            "lagCountTopK": [lag.to_object() for lag in by_count],
            "lagTimestampTopK": [lag.to_object() for lag in by_time],
            "totalLagCount": sum(lag.messages for lag in lags),
        }
        return request.answer(body=dumps(body))

    def dispatch(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, client_id = self._lite_group(request.text("group")).name, request.text_or("clientId", "")
        subscriptions = self._service.subscriptions
        for client in [LiteClient(group, client_id)] if client_id else subscriptions.clients_of(group):
            self._service.dispatch(client)
        return request.answer()

    # ---- what they need ----

    def _progress(self, group: str, queue: str) -> dict[str, object]:
        """Of a group in one lite topic."""
        end, committed = (
            self._reader.max_offset(queue, LMQ_QUEUE_ID),
            self._offsets.query(group, queue, LMQ_QUEUE_ID),
        )
        if not end:
            return {"earliestUnconsumedTimestamp": UNKNOWN, "totalLagCount": UNKNOWN}
        if committed < 0:
            return {"earliestUnconsumedTimestamp": UNKNOWN, "totalLagCount": 0}
        offsets = {"brokerOffset": end, "consumerOffset": committed, "lastTimestamp": 0, "pullOffset": 0}
        if committed > 0:
            offsets["lastTimestamp"] = self._reader.store_time(queue, LMQ_QUEUE_ID, committed - 1)
        return {
            "earliestUnconsumedTimestamp": self._reader.store_time(queue, LMQ_QUEUE_ID, committed),
            "liteTopicOffsetWrapper": offsets,
            "totalLagCount": end - committed,
        }

    async def _lags(self, group: str) -> list[Lag]:
        """Of the lite topics of which the group has an offset."""
        found: list[Lag] = []
        for n, queue in enumerate(self._offsets.topics_now(group)):
            if n % STEP == STEP - 1:
                await asyncio.sleep(0)
            lag = self._service.lag(group, queue) if queue.startswith(name_rules.LITE_PREFIX) else 0
            if lag:
                since_ms = UNKNOWN
                if len(found) < RETURNED_MAX:
                    committed = self._offsets.query(group, queue, LMQ_QUEUE_ID)
                    since_ms = self._reader.store_time(queue, LMQ_QUEUE_ID, committed)
                found.append(Lag(lag, queue, since_ms))
        return found

    def _lite_topic(self, name: str) -> TopicConfig:
        """Refusal."""
        topic = self._topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist.")
        if not topic.is_lite:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Topic [{name}] type not match.")
        return topic

    def _group(self, name: str) -> GroupConfig:
        """Refusal."""
        group = self._groups.get(name)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist.")
        return group

    def _lite_group(self, name: str) -> GroupConfig:
        """Refusal."""
        group = self._group(name)
        if not group.lite_topic:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Group [{name}] is not a LITE group.")
        return group

    def _is_of(self, name: str, topic: str) -> bool:
        group = self._groups.get(name)
        return group is not None and group.lite_topic == topic
