"""A Rebalancer with fakes, and brokers' answers for it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow._native.protocol import fastjson
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MessageModel
from firearrow.client.rebalance.allocate_strategies import averagely
from firearrow.client.rebalance.offset_store import OffsetTable
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.rebalance import Queues, RebalanceContext, Rebalancer
from firearrow.client.rebalance.start_offset import PullRequest
from tests.client.rounds import FakeInstance, queues_of
from tests.client.services import ManualScheduler

MEMBERS, LOCK, UNLOCK, ASSIGN = 38, 41, 42, 400
FOUR = queues_of("T", 4)


class Offsets(OffsetTable):
    """`persisted`: in order, each with the offset in memory."""

    def __init__(self, happened: list[object]) -> None:
        super().__init__()
        self._happened = happened

    async def persist(self, queue: MessageQueue) -> None:
        self._happened.append(("persist", queue.queue_id, self.cached_offset(queue)))


@dataclass
class Round:
    """A Rebalancer with fakes. `happened`: what it did, in order. `starts`: where each queue begins, else at 0."""

    instance: FakeInstance = field(default_factory=lambda: FakeInstance({MEMBERS: of_members("me")}))
    model: MessageModel = MessageModel.CLUSTERING
    strategy: Callable[..., Sequence[MessageQueue]] = averagely
    active: bool = False
    orderly: bool = False
    broker_assigns: bool = False
    topics: list[str] = field(default_factory=lambda: ["T"])
    starts: dict[MessageQueue, int | Exception] = field(default_factory=dict)
    listener: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.happened: list[object] = []
        self.time = ManualScheduler()
        self.offsets = Offsets(self.happened)
        self.instance.routes.queues.setdefault("T", FOUR)
        table: dict[MessageQueue, ProcessQueue] = {}
        locks = QueueLocks(self.instance, "group", table, self.time) if self.orderly else None
        self.rebalancer = Rebalancer(
            RebalanceContext(
                instance=self.instance,
                group="group",
                model=self.model,
                strategy=self.strategy,
                offsets=self.offsets,
                topics=lambda: self.topics,
                start_offset=self._start,
                begin=self._begin,
                changed=self._changed,
                locks=locks,
                active=self.active,
                broker_assigns=self.broker_assigns,
                begin_pop=self._begin_pop,
                pop_retry=lambda topic, wanted: self.happened.append(("retry", topic, wanted)),
                new_process_queue=lambda: ProcessQueue(self.time),
                clock=self.time,
                later=self.time.later,
            ),
            table,
        )
        self.table = table

    async def _start(self, queue: MessageQueue) -> int:
        start = self.starts.get(queue, 0)
        if isinstance(start, Exception):
            raise start
        return start

    def _begin(self, request: PullRequest) -> None:
        self.happened.append(("begin", request.queue.queue_id, request.next_offset))

    def _begin_pop(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.happened.append(("pop", queue.queue_id))

    async def _changed(self, topic: str, everything: Queues, mine: Queues) -> None:
        self.happened.append(("changed", topic, len(everything), sorted(queue.queue_id for queue in mine)))
        self.listener()

    def of(self, kind: str) -> list[object]:
        return [what for what in self.happened if isinstance(what, tuple) and what[0] == kind]

    @property
    def mine(self) -> list[int]:
        return sorted(queue.queue_id for queue, held in self.table.items() if not held.dropped)


def of_members(*ids: str) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda request: request.answer(body=json.dumps({"consumerIdList": ids}).encode())


def locking(*refused: MessageQueue) -> Callable[[RemotingCommand], RemotingCommand]:
    """A broker that locks all but these."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        wanted = [fastjson.queue_of(one) for one in fastjson.loads(request.body)["mqSet"]]
        return request.answer(
            body=fastjson.dumps({"lockOKMQSet": [one for one in wanted if one not in refused]})
        )

    return answer


def assigning(**modes: str) -> Callable[[RemotingCommand], RemotingCommand]:
    """`q0="PULL"`: queue 0 is to be pulled."""
    items = [
        {"messageQueue": MessageQueue("T", "broker-a", int(name[1:])), "mode": mode}
        for name, mode in modes.items()
    ]
    return lambda request: request.answer(body=fastjson.dumps({"messageQueueAssignments": items}))
