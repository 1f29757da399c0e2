"""Administration of consumers and producers: connections, subscriptions, relayed requests, progress. Loop
thread.

- `ConsumersHandler`: connections (203), subscriptions (300, 343, 345), requests relayed to one client (307,
  309), whose bytes are never parsed.
- `ProducersHandler`: connections of one group (204), and of all groups (328).
- `ProgressHandler`: GET_CONSUME_STATS (208), GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_TIME_SPAN (303).
  Statistics of the whole broker yield to the event loop between groups.
"""

import asyncio
import datetime
from typing import NamedTuple

import orjson

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable

RELAY_VERSION = 62
"""V3_1_8: older clients cannot be asked for their state."""
RELAY_S = 10.0
NOT_FILLED = "not set any response code"
"""Apache's default remark in a relayed answer; kept, because tools ignore it."""


class ConsumersHandler:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        config: Config,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._config = config

    def routes(self) -> Routes:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def connections(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = request.text("consumerGroup")
        online = self._clients.consumer_group(name)
        if online is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        subscriptions = sorted(online.subscriptions.items())
        body = {
            "connectionSet": [member.to_object() for member in online.members.values()],
            "consumeFromWhere": online.consume_from_where,
            "consumeType": online.consume_type,
            "messageModel": online.message_model,
            "subscriptionTable": {topic: subscription.to_object() for topic, subscription in subscriptions},
        }
        return request.answer(body=orjson.dumps(body))

    def groups_of_topic(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        committed = (
            group for group in self._offsets.groups_of(topic) if "@" not in group
        )  # broadcast offsets have an @
        groups = dict.fromkeys([*self._clients.groups_subscribed(topic), *committed])
        return request.answer(body=orjson.dumps({"groupList": list(groups)}))

    def topics_of_group(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topics = self._offsets.topics_of(request.text("group"))
        options = self._config.options
        address = f"{options.broker_ip or peer.local[0]}:{options.client_port or peer.local[1]}"
        return request.answer(body=orjson.dumps({"brokerAddr": address, "topicList": topics}))

    def subscription(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, topic = request.text("group"), request.text_or("topic", "")
        body: dict[str, object] = {"group": group, "topic": topic}
        found = self._clients.subscription(group, topic)
        if found is not None:
            body["subscriptionData"] = found.to_object()
        return request.answer(body=orjson.dumps(body))

    async def running_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return await self._relay(request, dict(request.ext), b"")

    async def consume_directly(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Send the message with `msgId` to one consumer, which consumes it now and returns the result."""
        ext = dict(request.ext)
        ext["brokerName"] = self._config.options.broker_name
        topic = self._topics.get(request.text_or("topic", ""))
        if topic is not None:
            ext["topicSysFlag"] = str(topic.sys_flag)
        group = self._groups.get(request.text_or("consumerGroup", ""))
        if group is not None:
            ext["groupSysFlag"] = str(group.sys_flag)
        body = b""
        message_id = request.text_or("msgId", "")
        if message_id:
            body = self._record(message_id)
        return await self._relay(request, ext, body)

    def _record(self, message_id: str) -> bytes:
        try:
            offset = offset_of(message_id)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"msgId is not a message id: {error}") from None
        record = self._store.reader.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    async def _relay(self, request: RemotingCommand, ext: dict[str, str], body: bytes) -> RemotingCommand:
        member = self._member(request.text("consumerGroup"), request.text_or("clientId", ""))
        try:
            answer = await member.peer.ask(RemotingCommand.request(request.code, ext, body), RELAY_S)
        except TimeoutError:
            remark = f"consumer <{request.text('consumerGroup')}> <{member.client_id}> Timeout"
            raise Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except ConnectionError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the consumer <{member.client_id}>: {error}") from None
        relayed_remark = NOT_FILLED if answer.code == ResponseCode.SUCCESS else answer.remark
        return request.answer(answer.code, relayed_remark, answer.ext, answer.body)

    def _member(self, group: str, client_id: str) -> Member:
        online = self._clients.consumer_group(group)
        member = None if online is None else online.member(client_id)
        if member is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < RELAY_VERSION:
            remark = (
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return member


class ProducersHandler:
    def __init__(self, clients: ClientTable, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def routes(self) -> Routes:
        return {
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def connections(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = request.text("producerGroup")
        members = self._clients.producers(name)
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.answer(
            body=orjson.dumps({"connectionSet": [member.to_object() for member in members]})
        )

    def all_producers(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """`lastUpdateTimestamp` is wall clock time; members have monotonic time."""
        wall_minus_monotonic_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        data = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": member.language_name,
                    "lastUpdateTimestamp": member.seen_ms + wall_minus_monotonic_ms,
                    "remoteIP": "/{}:{}".format(*member.peer.remote),
                    "version": member.version,
                }
                for member in members
            ]
            for group, members in sorted(self._clients.producer_groups().items())
        }
        return request.answer(body=orjson.dumps({"data": data}))


class QueueProgress(NamedTuple):
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int

    def to_object(self) -> dict[str, int]:
        return {
            "brokerOffset": self.broker_offset,
            "consumerOffset": self.consumer_offset,
            "lastTimestamp": self.last_timestamp,
            "pullOffset": self.pull_offset,
        }


class ProgressHandler:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        config: Config,
        clock: Clock,
        stats: Stats,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._config = config
        self._clock = clock
        self._stats = stats

    def routes(self) -> Routes:
        return {
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.consume_time_span,
        }

    def consume_stats(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group = request.text("consumerGroup")
        listed = [topic for topic in request.text_or("topicList", "").split(";") if topic]
        single = request.text_or("topic", "")
        online = self._clients.consumer_group(group)
        table: dict[MessageQueue, dict[str, int]] = {}
        tps = 0.0
        for topic in listed or ([single] if single else self._offsets.topics_of(group)):
            if topic not in self._topics or (online is not None and topic not in online.subscriptions):
                continue
            table |= {queue: progress.to_object() for queue, progress in self._progress(group, topic).items()}
            tps += self._stats.group_tps(group, topic)
        return request.answer(body=fastjson.dumps({"consumeTps": tps, "offsetTable": table}))

    async def broker_consume_stats(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        ordered_only = request.boolean_or("isOrder", False)
        listed: list[dict[str, object]] = []
        lag = inflight = 0
        for group in self._groups:
            topics = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                queues = self._progress(group, topic)
                lag += sum(queue.broker_offset - queue.consumer_offset for queue in queues.values())
                inflight += sum(queue.pull_offset - queue.consumer_offset for queue in queues.values())
                table = {queue: progress.to_object() for queue, progress in queues.items()}
                topics.append({"consumeTps": self._stats.group_tps(group, topic), "offsetTable": table})
            listed.append({group: topics})
            await asyncio.sleep(0)
        options = self._config.options
        body = {
            "brokerAddr": f"{options.broker_ip or peer.local[0]}:{options.client_port or peer.local[1]}",
            "consumeStatsList": listed,
            "totalDiff": lag,
            "totalInflightDiff": inflight,
        }
        return request.answer(body=fastjson.dumps(body))

    def consume_time_span(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, group = request.text("topic"), request.text("group")
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(f"topic[{topic}] not exist"))
        spans = [self._span(group, topic, queue_id) for queue_id in range(config.write_queues)]
        return request.answer(body=fastjson.dumps({"consumeTimeSpanSet": spans}))

    def _progress(self, group: str, topic: str) -> dict[MessageQueue, QueueProgress]:
        config = self._topics.get(topic)
        queues: dict[MessageQueue, QueueProgress] = {}
        read_queues = config.read_queues if config is not None else 0
        for queue_id in self._offsets.queues_behind(group, topic, read_queues) if read_queues else ():
            consumed = max(self._offsets.query(group, topic, queue_id), 0)
            if queue_id >= read_queues and self._store.reader.max_offset(topic, queue_id) <= consumed:
                continue
            queues[self._queue(topic, queue_id)] = QueueProgress(
                broker_offset=max(self._store.reader.max_offset(topic, queue_id), 0),
                consumer_offset=consumed,
                pull_offset=max(consumed, self._offsets.pulled(group, topic, queue_id)),
                last_timestamp=max(self._store.reader.store_time(topic, queue_id, consumed - 1), 0)
                if consumed
                else 0,
            )
        return queues

    def _span(self, group: str, topic: str, queue_id: int) -> dict[str, object]:
        store, high = self._store, self._store.reader.max_offset(topic, queue_id)
        first_ms = store.reader.store_time(topic, queue_id, store.reader.min_offset(topic, queue_id))
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_ms = store.reader.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
        next_ms = store.reader.store_time(topic, queue_id, max(consumed, 0)) if consumed < high else -1
        delay_ms = self._clock.now_ms() - next_ms if next_ms >= 0 else 0
        last_ms = store.reader.store_time(topic, queue_id, high - 1)
        return {
            "consumeTimeStamp": consumed_ms,
            "consumeTimeStampStr": _time_text(consumed_ms),
            "delayTime": delay_ms,
            "maxTimeStamp": last_ms,
            "maxTimeStampStr": _time_text(last_ms),
            "messageQueue": {
                "brokerName": self._config.options.broker_name,
                "queueId": queue_id,
                "topic": topic,
            },
            "minTimeStamp": first_ms,
            "minTimeStampStr": _time_text(first_ms),
        }

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._config.options.broker_name, queue_id)


def _time_text(at_ms: int) -> str:
    """`yyyy-MM-dd#HH:mm:ss:SSS` in local time."""
    at = datetime.datetime.fromtimestamp(at_ms / 1000).astimezone()
    return f"{at:%Y-%m-%d#%H:%M:%S}:{at_ms % 1000:03d}"
