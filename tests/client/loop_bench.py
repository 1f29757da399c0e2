"""Bench: a pull loop whose pulls, sleeps and clock a test controls, and the calls of its parts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import PushConsumerOptions
from firearrow.client.pull.pull_request import PullQuery, PullResult, PullStatus
from firearrow.client.pull.push_pull_loop import PullLoop, PullLoopContext
from firearrow.client.rebalance.offset_store import OffsetTable, ReadOffset
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.start_offset import PullRequest
from firearrow.client.rebalance.subscription import Subscription

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRY_QUEUE = MessageQueue("%RETRY%group", "broker-a", 0)


class Offsets(OffsetTable):
    async def load(self) -> None: ...

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        return self.cached_offset(queue)

    async def persist_all(self, queues: object) -> None: ...

    async def persist(self, queue: MessageQueue) -> None: ...


@dataclass
class Service:
    submitted: list[tuple[list[ReceivedMessage], bool]] = field(default_factory=list)

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None: ...

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        dispatch: bool,
    ) -> None:
        self.submitted.append((messages, dispatch))

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> dict[str, object]:
        return {}


@dataclass
class Stats:
    messages: list[int] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    def pull_took(self, topic: str, elapsed_s: float) -> None:
        self.took.append(elapsed_s)

    def pulled(self, topic: str, messages: int) -> None:
        self.messages.append(messages)


class Bench:
    """A loop whose pulls are answered from a list, whose sleeps end at once, and whose clock is set by hand.

    `sleep` records the seconds; when `answers` are used up, or after `sleeps_max` sleeps, the queue is dropped.
    """

    def __init__(self, options: PushConsumerOptions | None = None, queue: MessageQueue = QUEUE) -> None:
        self.options = options or PushConsumerOptions()
        self.offsets, self.service, self.stats = Offsets(), Service(), Stats()
        self.subscriptions = {queue.topic: Subscription.of(queue.topic)}
        self.state_running = True
        self.answers: list[PullResult | Exception] = []
        self.pulls: list[PullQuery] = []
        self.slept: list[float] = []
        self.sleeps_max = 1
        self.repaired: list[int] = []
        self.start_offset: int | Exception = 0
        self.now = 1000.0
        self.on_pull: Callable[[], object] = lambda: None
        self.process_queue = ProcessQueue(lambda: self.now)
        self.process_queue.last_pull_s = 0
        self.request = PullRequest(queue, self.process_queue, 10)
        self.loop = PullLoop(PullLoopContext(
            options=self.options, puller=self, offsets=self.offsets, service=self.service,
            subscriptions=self.subscriptions, running=lambda: self.state_running, start_offset=self._start_offset,
            repair=self._repair, stats=self.stats, exception_delay_s=0.9, clock=lambda: self.now, sleep=self._sleep,
            has_capacity=self._wait_capacity,
        ))  # type: ignore[arg-type]  # fmt: skip

    async def run(self) -> "Bench":
        await asyncio.wait_for(self.loop.run(self.request), 5)
        return self

    async def pull(self, pull: PullQuery) -> PullResult:
        self.pulls.append(pull)
        self.on_pull()
        if not self.answers:
            self.process_queue.dropped = True
            return found(pull.offset)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= self.sleeps_max:
            self.process_queue.dropped = True

    async def _wait_capacity(self, process_queue: ProcessQueue, seconds: float) -> None:
        await self.loop._context.sleep(seconds)

    async def _start_offset(self, queue: MessageQueue) -> int:
        if isinstance(self.start_offset, Exception):
            raise self.start_offset
        return self.start_offset

    async def _repair(self, request: PullRequest) -> None:
        self.repaired.append(request.next_offset)


def found(next_offset: int, *messages: ReceivedMessage, max_offset: int = 100) -> PullResult:
    return PullResult(PullStatus.FOUND, next_offset, 0, max_offset, list(messages))


def nothing(status: PullStatus, next_offset: int) -> PullResult:
    return PullResult(status, next_offset, 0, 100, [])
