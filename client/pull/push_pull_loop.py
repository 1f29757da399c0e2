"""PullLoop: pulls each owned queue of a push consumer repeatedly, within its limits.

Each queue has one task, so it has at most one outstanding request. The checks before a pull keep Java's
order, limits and delays, with one exception: a full queue is checked again as soon as half of it is finished,
not only after 50 ms. Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import FieldError
from firearrow.client.base.errors import BrokerError, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import MIB, MessageModel, PushConsumerOptions
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.consume.consume_results import ConsumeService
from firearrow.client.pull.pull_request import (
    CAUGHT_UP,
    NOT_LOGGED_AGAIN,
    WORKS_AGAIN,
    PullClient,
    PullQuery,
    PullResult,
    PullStatus,
)
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.start_offset import PullRequest
from firearrow.client.rebalance.subscription import Subscription

log = logging.getLogger("firearrow.client")

NOW = 0.0
FULL_S = 0.05
PAUSED_S = 1.0
BROKER_FULL_S = 0.02


class PullStats(Protocol):
    def pull_took(self, topic: str, elapsed_s: float, /) -> None: ...
    def pulled(self, topic: str, messages: int, /) -> None: ...


@dataclass(slots=True)
class FlowControlLimits:
    """How much one queue may cache before pulling pauses. Limits of topics replace those of queues."""

    messages_max: int
    bytes_max: int
    span_max: int

    @staticmethod
    def of(options: PushConsumerOptions) -> "FlowControlLimits":
        return FlowControlLimits(options.queue_messages_max, options.queue_bytes_max, options.span_max)

    def spread(self, options: PushConsumerOptions, queues: int) -> None:
        """Divide the limits of topics by the number of all queues of the consumer, as in Java."""
        if not queues:
            return
        if options.topic_messages_max is not None:
            self.messages_max = max(1, options.topic_messages_max // queues)
        if options.topic_bytes_max is not None:
            self.bytes_max = max(1, options.topic_bytes_max // MIB // queues) * MIB


@dataclass(slots=True, kw_only=True)
class PullLoopContext:
    """What a PullLoop works with.

    `repair` moves a queue whose offset the broker refused to the request's new offset. `lock` locks an orderly
    queue again, whose broker was away; None: only the owner of the loop does.
    """

    options: PushConsumerOptions
    puller: PullClient
    offsets: OffsetStore
    service: ConsumeService
    subscriptions: Mapping[str, Subscription]
    running: Callable[[], bool]
    start_offset: Callable[[MessageQueue], Awaitable[int]]
    repair: Callable[[PullRequest], Awaitable[None]]
    stats: PullStats
    lock: Callable[[MessageQueue], Awaitable[bool]] | None = None
    failed: Callable[[Exception], None] = lambda error: None
    """Called with the error of each pull that failed."""
    exception_delay_s: float = 1.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    has_capacity: Callable[[ProcessQueue, float], Awaitable[object]] = ProcessQueue.half_done


class PullLoop:
    def __init__(self, context: PullLoopContext) -> None:
        self._context = context
        self._options = context.options
        self._tasks: set[asyncio.Task[None]] = set()
        self.thresholds = FlowControlLimits.of(context.options)
        self.paused = False
        self._slow = StateLog(log, CAUGHT_UP, context.clock)
        self._failing = StateLog(log, WORKS_AGAIN, context.clock, level=logging.WARNING, quiet_s=FAILING_S)
        self.times_full = 0
        self.times_span_exceeded = 0

    def begin(self, request: PullRequest) -> None:
        """Pull this queue until it is dropped."""
        task = asyncio.get_running_loop().create_task(self.run(request))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel all requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def queues(self) -> int:
        """How many queues are pulled."""
        return len(self._tasks)

    async def run(self, request: PullRequest) -> None:
        process_queue = request.process_queue
        while not process_queue.dropped:
            # Before the checks: a paused queue has not expired.
            process_queue.last_pull_s = self._context.clock()
            wait_s = await self._step(request)
            if wait_s > NOW:
                await self._context.sleep(wait_s)

    async def _step(self, request: PullRequest) -> float:
        """Do one pull. Returns the seconds to wait before the next one."""
        if not self._context.running():
            return self._context.exception_delay_s
        if self.paused:
            return PAUSED_S
        if self._full(request):
            await self._context.has_capacity(request.process_queue, FULL_S)
            return NOW
        try:
            if self._options.orderly and not await self._locked(request):
                return self._context.exception_delay_s
            subscription = self._context.subscriptions.get(request.queue.topic)
            if subscription is None:
                log.info("%s: not pulled, the topic is no longer subscribed", request.queue)
                return self._context.exception_delay_s
            began = self._context.clock()
            result = await self._context.puller.pull(self._pull(request, subscription))
        except (RocketMQError, FieldError, RecordError) as error:
            return self._failed(request, error)
        self._failing.is_absent(request.queue.broker_name)
        if request.process_queue.dropped:
            return NOW
        if self.paused:
            return PAUSED_S  # what came meanwhile is pulled again
        return await self._answered(request, result, began)

    def _full(self, request: PullRequest) -> bool:
        queue, limits = request.process_queue, self.thresholds
        if queue.message_count > limits.messages_max or queue.message_bytes // MIB > limits.bytes_max // MIB:
            self._log_full(request, "too many messages are cached")
            self.times_full += 1
            return True
        if not self._options.orderly and queue.max_span() > limits.span_max:
            self._log_full(request, "the cached offsets are too far apart")
            self.times_span_exceeded += 1
            return True
        self._slow.is_absent(request.queue.topic)
        return False

    async def _locked(self, request: PullRequest) -> bool:
        """Orderly: whether this member has the lock.

        After a new lock the start offset is read again; it may be lower.
        """
        if not request.process_queue.locked and not await self._lock(request.queue):
            return False
        if not request.previously_locked:
            offset = await self._context.start_offset(request.queue)
            if offset < 0:
                log.error("%s: %d is not a valid start offset", request.queue, offset)
                return False
            if offset < request.next_offset:
                log.info(
                    "%s: pulling starts at %d instead of %d, the offset stored at the broker is lower",
                    request.queue,
                    offset,
                    request.next_offset,
                )
            request.previously_locked, request.next_offset = True, offset
        return True

    async def _lock(self, queue: MessageQueue) -> bool:
        return self._context.lock is not None and await self._context.lock(queue)

    def _pull(self, request: PullRequest, subscription: Subscription) -> PullQuery:
        options, commit = self._options, None
        if options.model is MessageModel.CLUSTERING:
            offset = self._context.offsets.cached_offset(request.queue)
            commit = offset if offset > 0 else None
        return PullQuery(
            queue=request.queue,
            subscription=subscription,
            offset=request.next_offset,
            batch=options.pull_batch,
            batch_bytes=options.pull_batch_bytes,
            suspend_s=options.pull_suspend_s,
            timeout_s=options.pull_timeout_s,
            commit=commit,
            post_expression=options.post_subscription,
        )

    async def _answered(self, request: PullRequest, result: PullResult, began: float) -> float:
        previous, request.next_offset = request.next_offset, result.next_offset
        if result.status is PullStatus.FOUND:
            self._context.stats.pull_took(request.queue.topic, self._context.clock() - began)
            return self._found(request, result, previous)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.info(
                "%s: the broker has no offset %d, pulling continues at %d",
                request.queue,
                previous,
                result.next_offset,
            )
            request.process_queue.dropped = True
            await self._context.repair(request)
            return NOW
        self._passed(request)
        return NOW

    def _passed(self, request: PullRequest) -> None:
        """All before the next offset is in the queue or was filtered out, by the broker or here."""
        request.process_queue.passed = request.next_offset
        if not request.process_queue.message_count:
            self._context.offsets.update(request.queue, request.next_offset, increase_only=True)

    def _found(self, request: PullRequest, result: PullResult, previous: int) -> float:
        messages, queue = result.messages, request.process_queue
        if result.next_offset < previous or (messages and messages[0].queue_offset < previous):
            log.info("%s: the answer to a pull at offset %d goes back before it", request.queue, previous)
        if not messages:
            self._passed(request)
            return NOW
        self._context.stats.pulled(request.queue.topic, len(messages))
        dispatch = queue.put(messages, result.max_offset)
        self._passed(request)
        self._context.service.submit(messages, queue, request.queue, dispatch)
        return self._options.pull_interval_s

    def _failed(self, request: PullRequest, error: Exception) -> float:
        self._context.failed(error)
        if not request.queue.topic.startswith(RETRY):
            broker, text = request.queue.broker_name, "pull of %s failed: %s"
            self._failing.failed(broker, error, text, request.queue, error)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_FULL_S
        return self._context.exception_delay_s

    def _log_full(self, request: PullRequest, why: str) -> None:
        queue = request.process_queue
        self._slow.is_there(
            request.queue.topic,
            f"%s: pulling pauses, %s: %d messages, %d bytes, a span of %d; {NOT_LOGGED_AGAIN}",
            request.queue,
            why,
            queue.message_count,
            queue.message_bytes,
            queue.max_span(),
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("pulling of a queue stopped after an unexpected error", exc_info=error)
