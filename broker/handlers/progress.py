"""How far groups have consumed: GET_CONSUME_STATS 208, GET_BROKER_CONSUME_STATS 317, QUERY_CONSUME_TIME_SPAN 303.
Loop thread; what covers the whole broker lets others have their turn between groups.
"""

import asyncio
import datetime
from typing import NamedTuple

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import fastjson
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.fastjson import MessageQueue
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable


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
        behind = inflight = 0
        for group in self._groups:
            topics = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                queues = self._progress(group, topic)
                behind += sum(queue.broker_offset - queue.consumer_offset for queue in queues.values())
                inflight += sum(queue.pull_offset - queue.consumer_offset for queue in queues.values())
                table = {queue: progress.to_object() for queue, progress in queues.items()}
                topics.append({"consumeTps": self._stats.group_tps(group, topic), "offsetTable": table})
            listed.append({group: topics})
            await asyncio.sleep(0)
        options = self._config.options
        body = {
            "brokerAddr": f"{options.broker_ip or peer.local[0]}:{options.listen_port or peer.local[1]}",
            "consumeStatsList": listed,
            "totalDiff": behind,
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
        queues = {}
        for queue_id in range(config.read_queues if config is not None else 0):
            consumed = max(self._offsets.query(group, topic, queue_id), 0)
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
        return MessageQueue(self._config.options.broker_name, queue_id, topic)


def _time_text(at_ms: int) -> str:
    """`yyyy-MM-dd#HH:mm:ss:SSS` in local time."""
    at = datetime.datetime.fromtimestamp(at_ms / 1000).astimezone()
    return f"{at:%Y-%m-%d#%H:%M:%S}:{at_ms % 1000:03d}"
