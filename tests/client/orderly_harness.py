"""OrderlyHarness: an OrderlyService over three queues, and a fake of the broker's locks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import (
    ConsumeResult,
    orderly_verdict,
)
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.listeners import Handler, HandlerThreads
from firearrow.client.consume.orderly_service import OrderlyService
from firearrow.client.consume.send_back import ORDERLY_RECONSUME_MAX
from firearrow.client.rebalance.process_queue import ProcessQueue
from tests.client.records import received
from tests.client.services import Back, ManualScheduler, Offsets, Stats, calls_of, settled

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
RETRIES = MessageQueue("%RETRY%workers", "broker-a", 0)
COMMIT, ROLLBACK = ConsumeResult.COMMIT, ConsumeResult.ROLLBACK
Verdicts = list[tuple[MessageQueue | None, str]]


class Brokers:
    """The broker's side of the locks."""

    def __init__(self, time: ManualScheduler, table: dict[MessageQueue, ProcessQueue]) -> None:
        self.time, self.table, self.gives, self.calls = time, table, True, list[str]()
        self.error: Exception | None = None

    async def lock(self, queue: MessageQueue) -> bool:
        self.calls.append(f"lock {queue.queue_id}")
        if self.error is not None:
            raise self.error
        if self.gives:
            self.table[queue].locked, self.table[queue].last_lock_s = True, self.time.now
        return self.gives

    async def lock_all(self) -> None:
        self.calls.append("lock all")

    async def unlock_all(self) -> None:
        self.calls.append("unlock all")


class OrderlyHarness:
    def __init__(
        self,
        handler: Handler | dict[str, Handler],
        *,
        batch_size: int = 2,
        at_a_time: int = 3,
        max_reconsume_times: int = ORDERLY_RECONSUME_MAX,
        takes: Callable[[ReceivedMessage], bool] = lambda message: True,
        broadcasting: bool = False,
        auto_commit: bool = True,
        locked: bool = True,
    ) -> None:
        self.time, self.offsets, self.stats, self.published = (
            ManualScheduler(),
            Offsets(),
            Stats(),
            Back(takes),
        )
        self.table = {queue: ProcessQueue(self.time) for queue in (QUEUE, OTHER, RETRIES)}
        for process_queue in self.table.values():
            process_queue.locked = locked
        self.locks = Brokers(self.time, self.table)
        threads = HandlerThreads("test", at_a_time)
        self.service = OrderlyService(
            Handlers(
                calls=calls_of(handler, orderly_verdict, self.stats, self.time, threads=threads),
                threads=threads,
                at_a_time=at_a_time,
                batch_size=batch_size,
                later=self.time.later,
            ),
            offsets=self.offsets,
            locks=None if broadcasting else self.locks,
            publish=self.published,
            max_reconsume_times=max_reconsume_times,
            every=self.time.every,
            suspend_s=1.0,
            auto_commit=auto_commit,
        )

    async def pulled(self, *offsets: int, queue: MessageQueue = QUEUE) -> list[ReceivedMessage]:
        messages = received(queue, offsets)
        await self.submit(messages, queue)
        return messages

    async def submit(self, messages: list[ReceivedMessage], queue: MessageQueue) -> None:
        process_queue = self.table[queue]
        self.service.submit(messages, process_queue, queue, process_queue.put(messages))
        await settled()


@dataclass
class Script:
    """Answers in turn, then success; an error is raised. Keeps the offsets of each call."""

    answers: list[object] = field(default_factory=list)
    calls: list[list[int]] = field(default_factory=list)

    async def __call__(self, messages: list[ReceivedMessage]) -> object:
        self.calls.append([message.queue_offset for message in messages])
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return await answer if isinstance(answer, Awaitable) else answer
