"""QueueLocks: the broker's locks on queues that are consumed in order.

They keep two members from working on one queue. The broker keeps a lock for 60 s, a ProcessQueue trusts it
for 30 s, and it is renewed every 20 s: a member that cannot reach the broker stops before another one may
start. A broker that was away may have given them to others: its locks are void until they are locked again.
Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.remoting.client_instance import ClientInstance

log = logging.getLogger("firearrow.client")
TIMEOUT_S = 1.0


class QueueLocks:
    """`table`: the queues of this member. Sends one request to each broker; a failed one changes nothing."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        table: Mapping[MessageQueue, ProcessQueue],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._group = group
        self._table = table
        self._clock = clock
        locks = "broker %s answers lock requests again, after %d failures"
        self._failing = StateLog(log, locks, clock, quiet_s=FAILING_S)

    async def lock_queues(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock these, even if the table lacks them. Returns those that are locked now."""
        return await self._for_each_broker(queues, self._lock)

    async def lock(self, queue: MessageQueue) -> bool:
        return queue in await self.lock_queues((queue,))

    async def lock_all(self) -> None:
        """Renew the locks. Queues that another member has locked are marked as not locked."""
        owned = [queue for queue, process_queue in self._table.items() if not process_queue.dropped]
        await self._for_each_broker(owned, self._renew)

    def broker_lost(self, address: str) -> None:
        """The connection to that broker has ended. A handler that works goes on; the next one waits for the lock."""
        routes = self._instance.routes
        for queue, process_queue in self._table.items():
            if routes.master(routes.broker_name_of(queue)) == address:
                process_queue.locked = False

    async def unlock_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock these with one-way requests; if one is lost, the locks expire."""
        await self._for_each_broker(queues, self._unlock)

    async def unlock_all(self) -> None:
        """At the end, when no handler runs: unlock dropped queues as well. Java lets their locks expire."""
        for queue in await self._for_each_broker(self._table, self._unlock):
            if (process_queue := self._table.get(queue)) is not None:
                process_queue.locked = False

    async def _for_each_broker(
        self,
        queues: Iterable[MessageQueue],
        work: Callable[[str, list[MessageQueue]], Awaitable[Collection[MessageQueue]]],
    ) -> set[MessageQueue]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(self._instance.routes.broker_name_of(queue), []).append(queue)

        async def at(broker: str, its_queues: list[MessageQueue]) -> Collection[MessageQueue]:
            try:
                answer = await work(broker, its_queues)
            except (ClientError, fastjson.JsonError) as error:
                text = "the lock request for %d queues at broker %s failed: %s"
                self._failing.failed(broker, error, text, len(its_queues), broker, error)
                return ()
            self._failing.is_absent(broker)
            return answer

        return set().union(*await asyncio.gather(*(at(*item) for item in by_broker.items())))

    async def _lock(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        request = self._request(RequestCode.LOCK_BATCH_MQ, queues)
        answer = await self._instance.call_master(broker, request, TIMEOUT_S)
        locked = _locked(answer.body).intersection(queues)
        for queue in locked:
            if (process_queue := self._table.get(queue)) is not None:
                process_queue.locked, process_queue.last_lock_s = True, self._clock()
        return locked

    async def _renew(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        locked = await self._lock(broker, queues)
        for queue in queues:
            process_queue = self._table.get(queue)
            if queue not in locked and process_queue is not None and process_queue.locked:
                log.info("%s is locked by another member of %s", queue, self._group)
                process_queue.locked = False
        return locked

    async def _unlock(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        await self._instance.oneway_master(
            broker, self._request(RequestCode.UNLOCK_BATCH_MQ, queues, oneway=True)
        )
        return queues

    def _request(
        self, code: RequestCode, queues: Iterable[MessageQueue], *, oneway: bool = False
    ) -> RemotingCommand:
        body = {
            "clientId": self._instance.client_id,
            "consumerGroup": self._group,
            "mqSet": list(queues),
            "onlyThisBroker": False,
        }
        return RemotingCommand.request(code, body=fastjson.dumps(body, is_sorted=False), oneway=oneway)


def _locked(body: bytes) -> set[MessageQueue]:
    """JsonError."""
    content = fastjson.loads_answer(body)
    queues = content.get("lockOKMQSet") if isinstance(content, dict) else None
    if not isinstance(queues, list):
        raise fastjson.JsonError("lockOKMQSet must be a list")
    return {fastjson.queue_of(queue) for queue in queues}
