"""TRIM_TOPIC (30001), which only FireArrow has: removes the first messages of a topic's queues. Loop thread.

Readers see the new first offsets at once. The answer is sent when they are in `trimmedQueues.json`; retention
deletes the files that no queue needs any more.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import orjson

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.offsets import queue_id_fault
from firearrow.broker.tables.topics import TopicConfig
from firearrow.broker.tables.trimmed_queues import TrimsFull

PURGE = -1
SLICE = 16
"""Queues that are trimmed before the loop may do other work."""
UNSAVED = (
    "the queues are trimmed, but the broker cannot write its config files and would show the messages again "
    "after a restart: free disk space at the broker and send the request again"
)


class Trim(NamedTuple):
    """Queue offsets: the first one, the one that is to become the first, and the end."""

    queue_id: int
    low: int
    target: int
    high: int

    def to_object(self) -> dict[str, int]:
        return {
            "queueId": self.queue_id,
            "minOffset": self.target,
            "maxOffset": self.high,
            "trimmed": self.target - self.low,
        }


class TrimHandler:
    """`moved(queues)` notifies requests that are held at these queues; `free()` lets retention delete files."""

    def __init__(
        self,
        context: BrokerContext,
        *,
        moved: Callable[[set[tuple[str, int]]], None],
        free: Callable[[], None],
    ) -> None:
        self._store = context.store
        self._saver = context.saver
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._trimmed = context.tables.trimmed
        self._moved = moved
        self._free = free

    def routes(self) -> Routes:
        return {RequestCode.TRIM_TOPIC: self.trim}

    async def trim(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        config = self._checked(topic)
        queues = self._queues(request, topic, config)
        trims = await self._plan(request, topic, queues)
        if not request.boolean_or("dryRun", False):
            await self._apply(topic, [trim for trim in trims if trim.target > trim.low])
        body = {"queues": [trim.to_object() for trim in trims]}
        return request.answer(body=orjson.dumps(body))

    def _checked(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:256]}] not exist")
        retried = topic.removeprefix(name_rules.RETRY_PREFIX) if topic != name_rules.RETRY_PREFIX else ""
        is_pop_retry = retried != topic and retried not in self._groups
        if self._topics.is_system(topic) or is_pop_retry:
            remark = (
                f"topic {topic} is a system topic: only others, and retry topics of groups, can be trimmed"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if config.is_compacted:
            remark = (
                f"topic {topic} is a compaction topic: send a newer message of a key, or delete the topic"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return config

    def _queues(self, request: RemotingCommand, topic: str, config: TopicConfig) -> list[int]:
        """The queues that the request names."""
        count = max(config.read_queues, config.write_queues)
        known = sorted({*range(count), *self._store.reader.queue_ids(topic)})
        if "queueId" not in request.ext:
            return known
        queue_id = request.integer("queueId", 32)
        fault = queue_id_fault(queue_id)
        if fault is None and queue_id not in known:
            fault = f"topic {topic} has no queue {queue_id}: leave queueId out to trim all its queues"
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        return [queue_id]

    async def _plan(self, request: RemotingCommand, topic: str, queues: list[int]) -> list[Trim]:
        reader = self._store.reader
        if ("offset" in request.ext) == ("timestamp" in request.ext):
            remark = "give either offset or timestamp; offset -1 removes all messages"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        field = "offset" if "offset" in request.ext else "timestamp"
        value = request.integer(field)
        if value < (PURGE if field == "offset" else 0):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{field} must not be {value}")
        trims: list[Trim] = []
        for number, queue_id in enumerate(queues):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
            if field == "timestamp":
                target = reader.offset_by_time(topic, queue_id, value)
            else:
                target = high if value == PURGE else value
            target = reader.batch_start(topic, queue_id, min(target, high))
            trims.append(Trim(queue_id, low, max(target, low), high))
        end = max((trim.high for trim in trims), default=0)
        if field == "offset" and value > end:
            remark = (
                f"offset {value} is past the end, {end}: give at most {end}, or -1 to remove all messages"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return trims

    async def _apply(self, topic: str, trims: list[Trim]) -> None:
        try:
            self._trimmed.ensure_capacity(len(trims))
        except TrimsFull as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        try:
            for number, trim in enumerate(trims):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                physical_offset = self._store.cleaner.trim_queue(topic, trim.queue_id, trim.target)
                if physical_offset > 0:
                    self._trimmed.note(topic, trim.queue_id, physical_offset)
                    self._moved({(topic, trim.queue_id)})
        except OSError as error:
            remark = f"a queue of topic {topic} cannot be read: {error.strerror or error}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None
        self._saver.retry_failed()
        if not await self._saver.saved():
            raise Refusal(ResponseCode.SYSTEM_ERROR, UNSAVED)
        if trims:
            self._free()
