"""RemoteOffsetStore: the offsets of a group at the brokers, for CLUSTERING; `default_offset_store` chooses a store.

Offsets are written one-way: a lost one is repeated by the next write. The last write waits for the brokers'
answers, because Apache's broker may otherwise give the next member an older offset. Event loop only.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import ClientError, ConnectionLost, OffsetUnknown, RequestTimeout, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import MessageModel
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.base.unsent import Unsent
from firearrow.client.rebalance.local_offset_store import LocalOffsetStore
from firearrow.client.rebalance.offset_store import NOT_FOUND, OffsetStore, OffsetTable, ReadOffset
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import MASTER

log = logging.getLogger("firearrow.client")
TIMEOUT_S = 5
FINAL_S = 8
"""How long after the first request for a last offset another one may begin."""
FINAL_PAUSE_S = 0.1
CONCURRENT_MAX = 100
"""Offsets written before other tasks of the loop run."""


class RemoteOffsetStore(OffsetTable):
    """`group`: its name as brokers know it."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        stored = "broker %s stores offsets again, after %d failures"
        self._failing = StateLog(log, stored, time.monotonic, quiet_s=FAILING_S)
        self._unsent = Unsent(f"{{}} offsets of consumer group {group} were not stored, messages come again")

    async def load(self) -> None:
        """Nothing to do: each offset is read when its queue is acquired."""

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        if how is not ReadOffset.STORE:
            known = self.cached_offset(queue)
            if known != NOT_FOUND or how is ReadOffset.MEMORY:
                return known
        try:
            offset = await self._ask(queue)
        except (ClientError, FieldError) as error:
            raise OffsetUnknown(f"{queue}: the offset could not be read: {error}") from error
        if offset != NOT_FOUND:
            self.update(queue, offset)
        return offset

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Entries of other queues are removed."""
        if not queues:
            return
        owned = set(queues)
        for queue in self.snapshot().keys() - owned:
            self.remove(queue)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in owned:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        if len(by_broker) == 1:
            await self._persist_at_one_broker(owned)
        else:
            await asyncio.gather(*map(self._persist_at_one_broker, by_broker.values()))

    async def _persist_at_one_broker(self, queues: Collection[MessageQueue]) -> None:
        for number, queue in enumerate(queues):
            await self.persist(queue)  # the current offset: handlers may advance it during this loop
            if number % CONCURRENT_MAX == CONCURRENT_MAX - 1:
                await asyncio.sleep(0)

    async def persist(self, queue: MessageQueue) -> None:
        offset = self.cached_offset(queue)
        if offset != NOT_FOUND:
            await self._write(queue, offset)

    async def persist_final(self, queues: Collection[MessageQueue]) -> None:
        """What could not be stored is reported on stderr: those messages come again."""
        await asyncio.gather(*(self._commit_final(queue) for queue in queues))
        self._unsent.report()

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Send the offset and wait for the broker's answer. ClientError."""
        address = await self._address(queue, only_master=False)
        command = self._update(queue, offset, oneway=False)
        check(await self._instance.call(address, command, TIMEOUT_S), queue.broker_name)

    async def _ask(self, queue: MessageQueue) -> int:
        address = await self._address(queue, only_master=True)
        fields = self._fields(queue)
        if not queue.topic.startswith(RETRY):
            # Otherwise brokers hide that nothing is stored while the queue's first message is in memory. A retry
            # topic is left to them: its first messages came while the group ran. 4.9 ignores the field.
            fields["setZeroIfNotFound"] = "false"
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        answer = await self._instance.call(address, command, TIMEOUT_S)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return NOT_FOUND
        return check(answer, queue.broker_name).integer("offset")

    async def _commit_final(self, queue: MessageQueue) -> None:
        offset = self.cached_offset(queue)
        if offset != NOT_FOUND:
            try:
                await self._commit_in_time(queue, offset)
            except ClientError as error:
                log.info("offset %d of %s was not stored at the broker: %s", offset, queue, error)
                self._unsent.failed(error)

    async def _commit_in_time(self, queue: MessageQueue, offset: int) -> None:
        """A broker that hangs for seconds, or resets connections, gets another request. ClientError."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + FINAL_S
        while True:
            try:
                return await self.commit(queue, offset)
            except (RequestTimeout, ConnectionLost):
                if now_s() >= until_s:
                    raise
                await asyncio.sleep(FINAL_PAUSE_S)

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        try:
            address = await self._address(queue, only_master=False)
            await self._instance.channels.oneway(address, self._update(queue, offset, oneway=True))
            self._failing.is_absent(queue.broker_name)
        except ClientError as error:
            text = "offset %d of %s was not stored at the broker, it is tried again: %s"
            self._failing.failed(queue.broker_name, error, text, offset, queue, error)

    def _update(self, queue: MessageQueue, offset: int, *, oneway: bool) -> RemotingCommand:
        ext = self._fields(queue) | {"commitOffset": str(offset)}
        return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext, oneway=oneway)

    def _fields(self, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }

    async def _address(self, queue: MessageQueue, *, only_master: bool) -> str:
        """The master's address.

        If the broker is not known, refresh the route once; then a slave is accepted as well.
        """
        routes = self._instance.routes
        found = routes.address(routes.broker_name_of(queue), MASTER, only_this=only_master)
        if found is None:
            await routes.refresh(queue.topic)
            found = routes.address(routes.broker_name_of(queue), MASTER)
        if found is None:
            raise ClientError(f"broker {routes.broker_name_of(queue)} is not known")
        return found.address


def default_offset_store(
    instance: ClientInstance, group: str, model: MessageModel, directory: Callable[[], str | os.PathLike[str]]
) -> OffsetStore:
    """Where a consumer without its own store keeps its offsets: at the brokers, or in a file of `directory()`."""
    if model is MessageModel.CLUSTERING:
        return RemoteOffsetStore(instance, group)
    return LocalOffsetStore(directory(), instance.client_id, group)
