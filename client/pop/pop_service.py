"""PopService: passes popped messages to handlers, then acknowledges them or hides them until a retry.

The broker keeps the offsets. A message that is not settled within its invisible time is delivered to another
member. Event loop only; handlers may run in threads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RequestTimeout, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import QUIET_S, StateLog
from firearrow.client.base.unsent import Unsent
from firearrow.client.consume.consume_results import DEAD_LETTER, ConsumeResult, Verdict
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.worker_pool import WorkerPool
from firearrow.client.pop.ack import AckClient
from firearrow.client.pop.receipt_handles import receipt_handle_of
from firearrow.client.rebalance.process_queue import ProcessQueue

log = logging.getLogger("firearrow.client")

DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""How long a message is hidden after its first, second, … failure."""
DISCARD_AGE_S = 2 * DELAYS_S[-1]
"""A message that failed too often and is older than this is acknowledged, so that it is not redelivered."""


@dataclass(slots=True, eq=False)
class PopConsumeRequest:
    """The messages of one handler call. `visible_at_s`: when others may get them, by the local clock."""

    messages: list[ReceivedMessage]
    process_queue: ProcessQueue
    queue: MessageQueue
    visible_at_s: float


class PopService:
    """`dead_letter(message)` returns whether the message is in the dead-letter topic."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        acks: AckClient,
        max_reconsume_times: int,
        dead_letter: Callable[[ReceivedMessage], Awaitable[bool]],
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._calls = handlers.calls
        self._late = StateLog(
            log, "topic %s: results come in time again, %d batches were late", handlers.calls.clock
        )
        self._threads = handlers.threads
        self._acks = acks
        self._turn = handlers.turn
        self._batch_size = handlers.batch_size
        self._max_reconsume_times = max_reconsume_times
        self._dead_letter = dead_letter
        self._clock_ms = clock_ms
        self._pool: WorkerPool[PopConsumeRequest] = WorkerPool(
            handlers.at_a_time, self._consume, handlers.later
        )
        self._answers: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._unsent = Unsent("{} answers for popped messages were not sent, the messages come again")

    async def stop(self, within_s: float) -> None:
        """Messages that no handler got become visible to the group again; results in time are sent to the
        brokers.
        """
        self._stopping = True
        await self._pool.stop(within_s)
        if self._answers:
            await asyncio.gather(*self._answers, return_exceptions=True)
        self._unsent.report()
        self._threads.close()

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        invisible_ms: int,
    ) -> None:
        """The messages are hidden for `invisible_ms` from now, and already counted as unacknowledged."""
        visible_at_s = self._calls.clock() + invisible_ms / 1000
        self._calls.restore_topics(messages, queue)
        for at in range(0, len(messages), self._batch_size):
            chunk = messages[at : at + self._batch_size]
            self._pool.add(PopConsumeRequest(chunk, process_queue, queue, visible_at_s))

    def ack_unwanted(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None:
        """Acknowledge messages that no handler gets."""
        for message in messages:
            self._spawn(partial(self._acks.ack, queue.topic, receipt_handle_of(message)), message)

    # ---- one chunk ----

    async def _consume(self, request: PopConsumeRequest) -> None:
        if self._turn is not None and not await self._turn():
            return
        if self._lost(request):
            return
        verdict = await self._calls.call(request.messages, request.queue)
        if not self._lost(request):
            self._settle(request, verdict)

    def _lost(self, request: PopConsumeRequest) -> bool:
        """Another member gets the messages: a handler's result is ignored."""
        if not request.process_queue.dropped and self._calls.clock() < request.visible_at_s:
            self._late.is_absent(request.queue.topic)
            return False
        request.process_queue.unacknowledged -= len(request.messages)
        self._late.is_there(
            request.queue.topic,
            "%s: %d messages are visible to other members again, their results are ignored: handlers are too slow, or "
            "the invisible time is too short; this is not logged again until it did not occur for %.0f s",
            request.queue,
            len(request.messages),
            QUIET_S,
        )
        return True

    def _settle(self, request: PopConsumeRequest, verdict: Verdict) -> None:
        size, topic = len(request.messages), request.queue.topic
        done = min(verdict.accepted, size) if verdict.result is ConsumeResult.SUCCESS else 0
        request.process_queue.unacknowledged -= size
        if done:
            self._calls.stats.succeeded(topic, done)
        if done < size:
            self._calls.stats.failed(topic, size - done)
        for message in request.messages[:done]:
            self._spawn(partial(self._acks.ack, topic, receipt_handle_of(message)), message)
        for message in request.messages[done:]:
            self._spawn(partial(self._retry, message, topic, verdict.delay_level), message)

    async def _retry(self, message: ReceivedMessage, topic: str, delay_level: int) -> None:
        receipt = receipt_handle_of(message)
        if delay_level == DEAD_LETTER:
            if await self._dead_letter(message):
                await self._acks.ack(topic, receipt)
        elif message.reconsume_times < self._max_reconsume_times:
            await self._acks.change_invisible(
                topic, receipt, _delay_ms(delay_level or message.reconsume_times)
            )
        elif (age_s := (self._clock_ms() - message.born_timestamp) / 1000) > DISCARD_AGE_S:
            log.warning("%r failed %d times and is discarded", message, message.reconsume_times)
            await self._acks.ack(topic, receipt)
        else:
            await self._acks.change_invisible(topic, receipt, _delay_ms(delay_level_above(age_s)))

    def _spawn(self, work: Callable[[], Awaitable[object]], message: ReceivedMessage) -> None:
        """Run in the background. A failure does no harm: the message is redelivered."""
        task = asyncio.get_running_loop().create_task(self._answer(work, message))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, work: Callable[[], Awaitable[object]], message: ReceivedMessage) -> None:
        """At the end a broker that hangs for seconds gets a second request, and a failure is reported."""
        try:
            try:
                await work()
            except RequestTimeout:
                if not self._stopping:
                    raise
                await work()
        except RocketMQError as error:
            log.info("the broker will redeliver %r: %s", message, error)
            if self._stopping:
                self._unsent.failed(error)
        except Exception:
            log.exception("the broker will redeliver %r", message)


def delay_level_above(age_s: float) -> int:
    """The first level whose delay is longer than `age_s`, else the last level."""
    return next((level for level, delay_s in enumerate(DELAYS_S) if age_s < delay_s), len(DELAYS_S) - 1)


def _delay_ms(level: int) -> int:
    return DELAYS_S[min(level, len(DELAYS_S) - 1)] * 1000
