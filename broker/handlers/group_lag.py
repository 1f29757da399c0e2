"""LIST_QUEUE_LOCKS (30004), GET_LAG (30006), of FireArrow alone: who holds queues, and the lag of groups.

Loop thread.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import decode
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.message import Property
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.paging import limit_of

LAG_ROWS_MAX = 10_000
"""Queues of one GET_LAG; further ones are left out, and `more` is true."""
SLICE = 64


class LagHandler:
    def __init__(self, context: BrokerContext) -> None:
        tables = context.tables
        self._store = context.store
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._clients, self._locks = tables.clients, tables.locks
        self._clock = context.clock

    def routes(self) -> Routes:
        return {RequestCode.LIST_QUEUE_LOCKS: self.locks, RequestCode.GET_LAG: self.lag}

    async def locks(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        limit = limit_of(request)
        held = list(islice(self._locks.held(request.text_or("group", "")), limit + 1))
        found: list[dict[str, Any]] = []
        for number, lock in enumerate(held[:limit]):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            queue, online = lock.queue, self._clients.consumer_group(lock.group)
            entry = {
                "group": lock.group,
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "clientId": lock.client,
                "connected": online is not None and online.member(lock.client) is not None,
                "lockedMs": lock.locked_ms,
                "lastRenewedMs": lock.renewed_ms,
            }
            found.append(entry | self._head(lock.group, queue.topic, queue.queue_id))
        return request.answer(body=orjson.dumps({"locks": found, "more": len(held) > limit}))

    def _head(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        """The first message that the group has not consumed."""
        reader, committed = self._store.reader, self._offsets.query(group, topic, queue_id)
        at = max(committed, reader.min_offset(topic, queue_id))
        entries = reader.entries(topic, queue_id, at, 1)
        raw = reader.record_at(entries[0].physical_offset) if entries else None
        record = None if raw is None else decode(raw, False)
        return {
            "committed": committed,
            "headOffset": at if record is not None else -1,
            "headMsgId": "" if record is None else record.properties.get(Property.UNIQUE_KEY, ""),
            "headAgeMs": 0 if record is None else max(self._clock.now_ms() - record.store_timestamp, 0),
        }

    async def lag(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, topic = request.text_or("group", ""), request.text_or("topic", "")
        found: list[dict[str, Any]] = []
        more = False
        for number, name in enumerate([group] if group else self._all_groups()):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            for of in [topic] if topic else self._topics_of(name):
                config = self._topics.get(of)
                if config is None or (topic and not group and of not in self._topics_of(name)):
                    continue
                for queue_id in self._offsets.queues_behind(name, of, config.read_queues):
                    if len(found) >= LAG_ROWS_MAX:
                        more = True
                        break
                    row = self._queue_lag(name, of, queue_id)
                    if queue_id < config.read_queues or row["lag"]:
                        found.append(row)
                    if len(found) % SLICE == 0:
                        await asyncio.sleep(0)
        return request.answer(body=orjson.dumps({"queues": found, "more": more}))

    def _all_groups(self) -> list[str]:
        online = (each.name for each in self._clients.consumer_groups())
        return sorted(name for name in {*self._groups, *online} if not name_rules.is_system_group(name))

    def _topics_of(self, group: str) -> Sequence[str]:
        """Topics in which the group has an offset, or that its members subscribe to."""
        online = self._clients.consumer_group(group)
        if online is not None and online.is_broadcasting:
            return ()  # its members keep their own offsets
        subscribed = () if online is None else online.subscriptions
        return sorted({*self._offsets.topics_of(group), *subscribed})

    def _queue_lag(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        reader, committed = self._store.reader, self._offsets.query(group, topic, queue_id)
        low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
        at = max(committed, low)
        stored_ms = reader.store_time(topic, queue_id, at) if at < high else -1
        return {
            "group": group,
            "topic": topic,
            "queueId": queue_id,
            "minOffset": low,
            "maxOffset": high,
            "committed": committed,
            "lag": max(high - at, 0),
            "lagMs": max(self._clock.now_ms() - stored_ms, 0) if stored_ms >= 0 else 0,
            "nextStoredMs": max(stored_ms, 0),
        }
