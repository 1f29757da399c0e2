"""QueueLocks: the broker's locks on queues that are consumed in order, so that two members never work on one at a time.

The broker keeps a lock 60 s, a ProcessQueue believes in it 30 s, and it is renewed every 20 s: a member that cannot
reach the broker stops before another one may begin. Event loop only.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance import fastjson
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.remoting.client_instance import ClientInstance

log = logging.getLogger("firearrow.client")
TIMEOUT_S = 1.0


class QueueLocks:
    """`table`: the queues of this member. One request for each broker; one that fails leaves its queues as they are."""

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

    async def lock_queues(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock these, in the table or not; which are ours now."""
        return await self._each_broker(queues, self._take)

    async def lock(self, queue: MessageQueue) -> bool:
        return queue in await self.lock_queues((queue,))

    async def lock_all(self) -> None:
        """Renew. What another member holds meanwhile is ours no more."""
        held = [queue for queue, process_queue in self._table.items() if not process_queue.dropped]
        await self._each_broker(held, self._renew)

    async def unlock_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have these. One-way: what does not arrive ends by itself."""
        await self._each_broker(queues, self._give)

    async def unlock_all(self) -> None:
        """At the end, when nobody works any more: also what is on its way out (Java lets the broker's time pass)."""
        for queue in await self._each_broker(self._table, self._give):
            if (process_queue := self._table.get(queue)) is not None:
                process_queue.locked = False

    async def _each_broker(
        self,
        queues: Iterable[MessageQueue],
        tell: Callable[[str, list[MessageQueue]], Awaitable[Collection[MessageQueue]]],
    ) -> set[MessageQueue]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(self._instance.routes.broker_name_of(queue), []).append(queue)
        done: set[MessageQueue] = set()
        for broker, theirs in by_broker.items():
            try:
                done.update(await tell(broker, theirs))
            except (ClientError, fastjson.JsonError) as error:
                log.warning("locks of %d queues at %s: %s", len(theirs), broker, error)
        return done

    async def _take(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        request = self._request(RequestCode.LOCK_BATCH_MQ, queues)
        answer = await self._instance.call_master(broker, request, TIMEOUT_S)
        ours = _locked(answer.body).intersection(queues)
        for queue in ours:
            if (process_queue := self._table.get(queue)) is not None:
                process_queue.locked, process_queue.last_lock_s = True, self._clock()
        return ours

    async def _renew(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        ours = await self._take(broker, queues)
        for queue in queues:
            process_queue = self._table.get(queue)
            if queue not in ours and process_queue is not None and process_queue.locked:
                log.warning("%s is locked by another member of %s", queue, self._group)
                process_queue.locked = False
        return ours

    async def _give(self, broker: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
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
        return RemotingCommand.request(code, body=fastjson.dumps(body), oneway=oneway)


def _locked(body: bytes) -> set[MessageQueue]:
    """JsonError."""
    content = fastjson.loads(body)
    queues = content.get("lockOKMQSet") if isinstance(content, dict) else None
    if not isinstance(queues, list):
        raise fastjson.JsonError("lockOKMQSet: a list is wanted")
    return {fastjson.message_queue(queue) for queue in queues}
