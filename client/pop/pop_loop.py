"""PopLoop: pops each assigned queue repeatedly, within its limit; PopClient: sends a POP request.

Each queue has one task, so it has at most one outstanding request. Checks and delays are Java's. Event loop
only.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import BrokerError, RocketMQError
from firearrow.client.base.hooks import FilterHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import FAILING_S, QUIET_S, StateLog
from firearrow.client.pop.pop_prefetcher import Caller
from firearrow.client.pop.pop_request import (
    GRACE_S,
    Opener,
    PopRequest,
    PopResult,
    PopStatus,
    pop_command,
    pop_result,
)
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance

log = logging.getLogger("firearrow.client")

NOW = 0.0
WAIT_S = 15.0
PAUSES = (
    "%s: popping pauses, %d messages are not acknowledged; further pauses are not logged until there were none for "
    f"{QUIET_S:.0f} s"
)
FULL_S = 0.05
PAUSED_S = 1.0
BROKER_FULL_S = 0.02
EARLY_S = 0.05
"""If a broker finds nothing in less than this time, it did not wait, and the next pop is delayed."""


class PopMessageSink(Protocol):
    """Gets the popped messages (PopService)."""

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        invisible_ms: int,
    ) -> None: ...

    def ack_unwanted(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None: ...


class PopStats(Protocol):
    def pull_took(self, topic: str, elapsed_s: float, /) -> None: ...
    def pulled(self, topic: str, messages: int, /) -> None: ...


@dataclass(slots=True, kw_only=True)
class PopLoopContext:
    """What a PopLoop works with. No handler gets a message that failed more than `max_reconsume_times`."""

    group: str
    options: PushConsumerOptions
    pop: Callable[[PopRequest], Awaitable[PopResult]]
    sink: PopMessageSink
    subscriptions: Mapping[str, Subscription]
    running: Callable[[], bool]
    paused: Callable[[], bool]
    stats: PopStats
    max_reconsume_times: int
    filters: Sequence[FilterHook] = ()
    failed: Callable[[Exception], None] = lambda error: None
    exception_delay_s: float = 1.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class PopLoop:
    def __init__(self, context: PopLoopContext) -> None:
        self._context = context
        self._slow = StateLog(
            log, "topic %s is consumed as fast as it is popped again: it paused %d times", context.clock
        )
        self._failing = StateLog(
            log,
            "broker %s answers pops again, after %d failures",
            context.clock,
            level=logging.WARNING,
            quiet_s=FAILING_S,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Pop this queue (id -1: any of that broker) until it is dropped."""
        task = asyncio.get_running_loop().create_task(self.run(queue, process_queue))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel all requests; messages that a broker still delivers become visible to the group again."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        while not process_queue.dropped:
            process_queue.last_pop_s = self._context.clock()
            wait_s = await self._step(queue, process_queue)
            if wait_s > NOW:
                await self._context.sleep(wait_s)

    async def _step(self, queue: MessageQueue, process_queue: ProcessQueue) -> float:
        context = self._context
        if not context.running():
            return context.exception_delay_s
        if context.paused():
            return PAUSED_S
        if process_queue.unacknowledged > context.options.pop_queue_max:
            self._slow.is_there(queue.topic, PAUSES, queue, process_queue.unacknowledged)
            return FULL_S
        self._slow.is_absent(queue.topic)
        subscription = context.subscriptions.get(queue.topic)
        if subscription is None:
            log.info("%s: not popped, the topic is no longer subscribed", queue)
            return context.exception_delay_s
        began = context.clock()
        try:
            result = await context.pop(self._pop(queue, subscription))
        except RocketMQError as error:
            return self._failed(queue, error)
        self._failing.is_absent(queue.broker_name)
        if result.messages:
            result = await self._hold_while_paused(process_queue, result)
        if process_queue.dropped or (result.messages and result.invisible_ms <= 0):
            return NOW  # the popped messages become visible to other members again
        if result.status is PopStatus.FOUND:
            context.stats.pull_took(queue.topic, context.clock() - began)
            return self._found(queue, process_queue, result, subscription)
        if result.status is PopStatus.POLLING_FULL:
            return context.exception_delay_s
        return NOW if context.clock() - began > EARLY_S else EARLY_S

    async def _hold_while_paused(self, process_queue: ProcessQueue, result: PopResult) -> PopResult:
        """What a pop brings after `pause` is handed out after `resume`, unless it is visible to others by then."""
        context = self._context
        visible_at_s = context.clock() + result.invisible_ms / 1000
        while context.paused() and not process_queue.dropped and context.clock() < visible_at_s:
            process_queue.last_pop_s = context.clock()
            await context.sleep(PAUSED_S)
        return replace(result, invisible_ms=round((visible_at_s - context.clock()) * 1000))

    def _pop(self, queue: MessageQueue, subscription: Subscription) -> PopRequest:
        options = self._context.options
        return PopRequest(
            group=self._context.group,
            queue=queue,
            subscription=subscription,
            batch=options.pop_batch,
            invisible_ms=round(options.pop_invisible_s * 1000),
            wait_ms=round(WAIT_S * 1000),
            from_first=options.from_where is ConsumeFromWhere.FIRST_OFFSET,
        )

    def _found(
        self,
        queue: MessageQueue,
        process_queue: ProcessQueue,
        result: PopResult,
        subscription: Subscription,
    ) -> float:
        accepted = self._filter(queue, result.messages, subscription)
        if len(accepted) < len(result.messages):
            kept = set(accepted)
            unwanted = [message for message in result.messages if message not in kept]
            self._context.sink.ack_unwanted(unwanted, queue)
        if not accepted:
            return NOW
        self._context.stats.pulled(queue.topic, len(accepted))
        process_queue.unacknowledged += len(accepted)
        self._context.sink.submit(accepted, process_queue, queue, result.invisible_ms)
        return self._context.options.pull_interval_s

    def _filter(
        self, queue: MessageQueue, messages: list[ReceivedMessage], subscription: Subscription
    ) -> list[ReceivedMessage]:
        tags, times_max = subscription.tags, self._context.max_reconsume_times
        accepted = [message for message in messages if not tags or message.tags in tags]
        for hook in self._context.filters:
            try:
                accepted = hook.filter(self._context.group, queue, accepted)
            except Exception:
                log.exception("a filter hook failed: %r", hook)
        return [message for message in accepted if message.reconsume_times <= times_max]

    def _failed(self, queue: MessageQueue, error: Exception) -> float:
        self._context.failed(error)
        self._failing.failed(queue.broker_name, error, "pop of %s failed: %s", queue, error)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_FULL_S
        return self._context.exception_delay_s

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("popping of a queue stopped after an unexpected error", exc_info=error)


class PopClient:
    """Sends a PopRequest to the master of its broker and reads the answer.

    `first(topic, broker)` is awaited before each pop: StartAfterLast.
    """

    def __init__(
        self,
        caller: Caller | ClientInstance,
        opener: Opener = open_body,
        first: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._caller = caller
        self._opener = opener
        self._first = first

    async def pop(self, pop: PopRequest) -> PopResult:
        """The messages, with the topic as brokers know it. ClientError."""
        if self._first is not None:
            await self._first(pop.queue.topic, pop.queue.broker_name)
        answer = await self._caller.call_master(
            pop.queue.broker_name,
            pop_command(pop, now_ms()),
            pop.wait_ms / 1000 + GRACE_S,
            topic=pop.queue.topic,
            any_code=True,
        )
        return pop_result(answer, pop, self._opener, pop.queue.topic)
