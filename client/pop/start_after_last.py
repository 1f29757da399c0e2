"""StartAfterLast: lets a group that pops start after the last message of a topic, if it has no offset there.

A broker starts such a group at the first message while that is in memory, else at the last one: `initMode` is
all that a pop can report. So the offset is committed before the first pop. Event loop only.
"""

import asyncio
import logging

from firearrow.client.base.errors import ClientError, OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import RETRY
from firearrow.client.rebalance.offset_store import NOT_FOUND, ReadOffset
from firearrow.client.rebalance.remote_offset_store import RemoteOffsetStore
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets

log = logging.getLogger("firearrow.client")

CONCURRENT_MAX = 32
"""Queues whose offsets are read at a time."""


class StartAfterLast:
    """`group`: its name as brokers know it. Queues that are created later are popped from their start."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._offsets = RemoteOffsetStore(instance, group)
        self._positions = QueueOffsets(instance)
        self._begun: set[str] = set()
        self._pending: dict[tuple[str, str], set[MessageQueue]] = {}
        """Topic and broker → queues whose offsets are not known to exist yet."""

    async def begin(self, topic: str) -> None:
        """Commit the offsets in the topic's known queues, as brokers know it. Failures are tried again later."""
        if topic.startswith(RETRY) or topic in self._begun:
            return
        self._begun.add(topic)
        for queue in self._instance.routes.known_subscribe_queues(topic):
            self._pending.setdefault((topic, queue.broker_name), set()).add(queue)
        brokers = [broker for name, broker in self._pending if name == topic]
        for error in await asyncio.gather(
            *(self.ensure(topic, broker) for broker in brokers), return_exceptions=True
        ):
            if isinstance(error, ClientError):
                log.info("topic %s: its last offsets are not known yet: %s", topic, error)
            elif isinstance(error, BaseException):
                raise error

    async def ensure(self, topic: str, broker_name: str) -> None:
        """Do what `begin` could not do. ClientError."""
        while queues := self._pending.get((topic, broker_name)):
            batch = sorted(queues)[:CONCURRENT_MAX]
            await asyncio.gather(*(self._commit(queue) for queue in batch))
            queues.difference_update(batch)
        self._pending.pop((topic, broker_name), None)

    async def _commit(self, queue: MessageQueue) -> None:
        """The next offset is read first: members that start together may commit it twice, but skip nothing."""
        end = await self._positions.max_offset(queue)
        try:
            stored = await self._offsets.read(queue, ReadOffset.STORE)
        except OffsetUnknown as error:
            raise ClientError(str(error)) from error
        if stored == NOT_FOUND:
            await self._offsets.commit(queue, end)
