"""Prefetcher: pulls the queues of a pull consumer and buffers the messages until `poll`.

Each queue has one task, so it has at most one outstanding request. The prefetcher tracks how far each queue
was delivered; it commits nothing. The checks before a pull keep Java's order and delays. Event loop only.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import FieldError
from firearrow.client.base.errors import BrokerError, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MIB, PullConsumerOptions
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.pull.pull_request import (
    CAUGHT_UP,
    NOT_LOGGED_AGAIN,
    WORKS_AGAIN,
    PullQuery,
    PullResult,
    PullStatus,
)
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription

log = logging.getLogger("firearrow.client")

UNKNOWN = -1
NOW = 0.0
FULL_S = 0.05
BROKER_FULL_S = 0.02
START_RETRY_S = 3.0
PULL_BYTES = (1 << 31) - 1


class PrefetchedQueue:
    """One queue and its progress.

    `next_offset`: where the next pull starts; UNKNOWN: at the group's offset. `position`: the offset after
    the messages that polls have returned, and after those filtered out past them; `done`: the offset to
    commit.
    """

    __slots__ = ("done", "next_offset", "position", "process_queue", "queue", "resumed", "task")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int = UNKNOWN) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.next_offset = next_offset
        self.position = self.done = UNKNOWN
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.task: asyncio.Task[None] | None = None


class _Batch(NamedTuple):
    pulled: PrefetchedQueue
    messages: list[ReceivedMessage]


@dataclass(slots=True, kw_only=True)
class PrefetchContext:
    """What the tasks work with. `subscription(topic)`: the current subscription, None: unsubscribed."""

    options: PullConsumerOptions
    pull: Callable[[PullQuery], Awaitable[PullResult]]
    subscription: Callable[[str], Subscription | None]
    start_offset: Callable[[MessageQueue], Awaitable[int]]
    failed: Callable[[Exception], None] = lambda error: None
    exception_delay_s: float = 1.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class Prefetcher:
    def __init__(self, context: PrefetchContext) -> None:
        self._context = context
        self._options = context.options
        self.table: dict[MessageQueue, PrefetchedQueue] = {}
        self._batches: deque[_Batch] = deque()
        self._cached = 0
        self._arrived = asyncio.Event()
        self._delivered: set[PrefetchedQueue] = set()
        self._slow = StateLog(log, CAUGHT_UP, context.clock)
        self._failing = StateLog(log, WORKS_AGAIN, context.clock, level=logging.WARNING, quiet_s=FAILING_S)
        self._batch_ended = False
        self._closed = False

    # ---- queues ----

    def begin(
        self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int = UNKNOWN
    ) -> PrefetchedQueue:
        """Pull this queue until it is dropped."""
        pulled = PrefetchedQueue(queue, process_queue, next_offset)
        self.table[queue] = pulled
        self._update_position(pulled)
        self._start(pulled)
        return pulled

    def drop(self, queue: MessageQueue) -> None:
        """Stop pulling the queue; polls return nothing more of it."""
        pulled = self.table.pop(queue, None)
        if pulled is not None:
            pulled.process_queue.dropped = True
            self._stop(pulled)
            self._forget(pulled)

    def seek(self, pulled: PrefetchedQueue, offset: int) -> None:
        """Continue at `offset`; buffered messages are dropped."""
        self._stop(pulled)
        self._forget(pulled)
        pulled.process_queue.clear()
        pulled.next_offset = pulled.position = offset
        self._delivered.add(pulled)
        self._start(pulled)

    async def close(self) -> None:
        """Cancel all requests and wake the caller of `poll_batch`."""
        self._closed = True
        tasks = [pulled.task for pulled in self.table.values() if pulled.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._batches.clear()
        self._arrived.set()

    # ---- delivery ----

    def commit_delivered(self) -> None:
        """Mark all messages that polls have returned as done."""
        for pulled in self._delivered:
            pulled.done = pulled.position
        self._delivered.clear()

    async def poll_batch(
        self, timeout_s: float, most: int
    ) -> tuple[MessageQueue, list[ReceivedMessage]] | None:
        """The next messages of one queue, at most `most`, in order; None after `timeout_s` or once closed."""
        if self._batch_ended:
            self._batch_ended = False
            await asyncio.sleep(0)  # let other tasks run even if the user polls without a pause
        if not self._batches:
            await self._wait(timeout_s)
        if not self._batches:
            return None
        pulled, messages = self._batches.popleft()
        if len(messages) > most:
            self._batches.appendleft(_Batch(pulled, messages[most:]))
            messages = messages[:most]
        else:
            self._batch_ended = True
        self._cached -= len(messages)
        pulled.position = pulled.process_queue.remove(messages)
        self._update_position(pulled)
        return pulled.queue, messages

    async def _wait(self, timeout_s: float) -> None:
        """Wait until messages arrive, the time is over, or the prefetcher is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._batches and not self._closed:
                    self._arrived.clear()
                    await self._arrived.wait()

    # ---- one queue ----

    def _start(self, pulled: PrefetchedQueue) -> None:
        pulled.task = asyncio.get_running_loop().create_task(self.run(pulled))
        pulled.task.add_done_callback(_ended)

    def _stop(self, pulled: PrefetchedQueue) -> None:
        if pulled.task is not None:
            pulled.task.cancel()
            pulled.task = None

    def _forget(self, pulled: PrefetchedQueue) -> None:
        dropped = [batch for batch in self._batches if batch.pulled is pulled]
        self._cached -= sum(len(batch.messages) for batch in dropped)
        if dropped:
            self._batches = deque(batch for batch in self._batches if batch.pulled is not pulled)
        self._delivered.discard(pulled)

    async def run(self, pulled: PrefetchedQueue) -> None:
        while not pulled.process_queue.dropped:
            await pulled.resumed.wait()
            pulled.process_queue.last_pull_s = self._context.clock()
            wait_s = await self._step(pulled)
            if wait_s > NOW:
                await self._context.sleep(wait_s)

    async def _step(self, pulled: PrefetchedQueue) -> float:
        """Do one pull. Returns the seconds to wait before the next one."""
        if self._full(pulled):
            self._slow.is_there(
                pulled.queue.topic,
                "%s: pulling pauses, too many messages are cached or their offsets are too far apart; "
                f"{NOT_LOGGED_AGAIN}",
                pulled.queue,
            )
            return FULL_S
        self._slow.is_absent(pulled.queue.topic)
        if pulled.next_offset == UNKNOWN:
            try:
                pulled.next_offset = await self._context.start_offset(pulled.queue)
            except RocketMQError as error:
                text = "%s: not pulled yet, the start offset is unknown: %s"
                self._context.failed(error)
                self._failing.failed(pulled.queue.broker_name, error, text, pulled.queue, error)
                return START_RETRY_S
            self._update_position(pulled)
        subscription = self._context.subscription(pulled.queue.topic)
        if subscription is None:
            return self._context.exception_delay_s
        try:
            result = await self._context.pull(self._pull(pulled, subscription))
        except (RocketMQError, FieldError, RecordError) as error:
            return self._failed(pulled, error)
        self._failing.is_absent(pulled.queue.broker_name)
        if not pulled.process_queue.dropped and pulled.resumed.is_set():  # else it is pulled again
            self._answered(pulled, result)
        return NOW

    def _full(self, pulled: PrefetchedQueue) -> bool:
        options, queue = self._options, pulled.process_queue
        return (
            self._cached > options.cached_max
            or queue.message_count > options.queue_messages_max
            or queue.message_bytes // MIB > options.queue_bytes_max // MIB
            or queue.max_span() > options.span_max
        )

    def _pull(self, pulled: PrefetchedQueue, subscription: Subscription) -> PullQuery:
        """Each request contains the filter, so that brokers do not need the subscription."""
        options = self._options
        if subscription.kind == "TAG":
            subscription = replace(subscription, version=0)
        return PullQuery(
            queue=pulled.queue,
            subscription=subscription,
            offset=pulled.next_offset,
            batch=options.pull_batch,
            batch_bytes=PULL_BYTES,
            suspend_s=options.suspend_s,
            timeout_s=options.suspend_timeout_s,
            post_expression=True,
            lite=True,
        )

    def _answered(self, pulled: PrefetchedQueue, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.info(
                "%s: the broker has no offset %d, pulling continues at %d",
                pulled.queue,
                pulled.next_offset,
                result.next_offset,
            )
        pulled.next_offset = result.next_offset
        if result.messages:
            pulled.process_queue.put(result.messages, result.max_offset)
            self._batches.append(_Batch(pulled, result.messages))
            self._cached += len(result.messages)
            self._arrived.set()
        else:
            self._update_position(pulled)

    def _update_position(self, pulled: PrefetchedQueue) -> None:
        """If nothing is buffered, all before the next pull counts as delivered, even if filtered out."""
        if not pulled.process_queue.message_count:
            pulled.position = pulled.next_offset
        self._delivered.add(pulled)

    def _failed(self, pulled: PrefetchedQueue, error: Exception) -> float:
        self._context.failed(error)
        broker, text = pulled.queue.broker_name, "pull of %s failed: %s"
        self._failing.failed(broker, error, text, pulled.queue, error)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_FULL_S
        return self._context.exception_delay_s


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("pulling of a queue stopped after an unexpected error", exc_info=error)
