"""ConcurrentService: passes chunks of pulled messages to handlers concurrently; they finish in any order.

The stored offset is always that of the lowest unfinished message. Event loop only; handlers may run in
threads.

ExpiredMessageCleaner: if a handler works too long on the first message of a queue, the message is sent back,
so that the offset can advance. The handler is not stopped, but its result is ignored.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.state_log import StateLog
from firearrow.client.consume.consume_results import Cancellable, ConsumeResult, Every, OffsetSink
from firearrow.client.consume.direct import consume_directly
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.worker_pool import WorkerPool
from firearrow.client.rebalance.process_queue import ProcessQueue

log = logging.getLogger("firearrow.client")

SWEEP_MAX = 16
DELAY_LEVEL = 3


class ExpiredMessageCleaner:
    """`began(process_queue, message)`: when a handler got the message (monotonic seconds), None: none has it.

    `send_back(message, delay_level)` returns whether the broker has it now.
    """

    def __init__(
        self,
        *,
        queues: Callable[[], Iterable[ProcessQueue]],
        began: Callable[[ProcessQueue, ReceivedMessage], float | None],
        send_back: Callable[[ReceivedMessage, int], Awaitable[bool]],
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._queues = queues
        self._began = began
        self._send_back = send_back
        self._timeout_s = timeout_s
        self._clock = clock
        self._expiries = StateLog(
            log, "topic %s: handlers end in time again, %d messages were sent back", clock, quiet_s=timeout_s
        )

    async def sweep(self) -> None:
        """Check all queues once, at most 16 messages of each."""
        for process_queue in list(self._queues()):
            await self._clean(process_queue)

    async def _clean(self, process_queue: ProcessQueue) -> None:
        for _ in range(min(process_queue.message_count, SWEEP_MAX)):
            head = process_queue.head()
            if head is None or process_queue.dropped or not self._expired(process_queue, head):
                if head is not None:
                    self._expiries.is_absent(head.topic)
                return
            if await self._send_back(head, DELAY_LEVEL) and process_queue.head() is head:
                text = "%r was sent back: its handler has run for over %.0f s; further ones are not logged"
                self._expiries.is_there(head.topic, text, head, self._timeout_s)
                process_queue.remove([head])

    def _expired(self, process_queue: ProcessQueue, head: ReceivedMessage) -> bool:
        began = self._began(process_queue, head)
        return began is not None and self._clock() - began > self._timeout_s


RESUBMIT_S = 5.0


@dataclass(slots=True, eq=False)
class ConsumeRequest:
    """The messages of one handler call. `began`: when it started (Java sets a property of each message)."""

    messages: list[ReceivedMessage]
    process_queue: ProcessQueue
    queue: MessageQueue
    began: float | None = None


class ConcurrentService:
    """`send_back(message, delay_level)` returns whether the broker has the message. None in BROADCASTING:
    failed messages are dropped.

    `queues` returns the current ProcessQueues and `every` is that of a ClientInstance: for expired messages.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        offsets: OffsetSink,
        send_back: Callable[[ReceivedMessage, int], Awaitable[bool]] | None,
        queues: Callable[[], Iterable[ProcessQueue]],
        every: Every,
        timeout_s: float = 15 * 60,
    ) -> None:
        self._calls = handlers.calls
        self._threads = handlers.threads
        self._turn = handlers.turn
        self._batch_size = handlers.batch_size
        self._offsets = offsets
        self._send_back = send_back
        self._queues = queues
        self._every = every
        self._timeout_s = timeout_s
        self._pool: WorkerPool[ConsumeRequest] = WorkerPool(handlers.at_a_time, self._consume, handlers.later)
        self._running: set[ConsumeRequest] = set()
        self._sweeper: Cancellable | None = None

    async def start(self) -> None:
        if self._send_back is not None:
            expiry = ExpiredMessageCleaner(
                queues=self._queues,
                began=self._began,
                send_back=self._send_back,
                timeout_s=self._timeout_s,
                clock=self._calls.clock,
            )
            self._sweeper = self._every(self._timeout_s, expiry.sweep, self._timeout_s)

    async def stop(self, within_s: float) -> None:
        """Messages that no handler got stay unfinished: offsets stop before them."""
        await self._pool.stop(within_s)
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._threads.close()

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        dispatch: bool = True,
    ) -> None:
        if not messages:
            return
        self._calls.restore_topics(messages, queue)
        size = self._batch_size
        if len(messages) > size:
            chunks = [messages[at : at + size] for at in range(0, len(messages), size)]
        else:
            chunks = [messages]
        for chunk in chunks:
            while (count := self._calls.same_topic(chunk, queue)) < len(chunk):
                self._pool.add(ConsumeRequest(chunk[:count], process_queue, queue))
                chunk = chunk[count:]  # noqa: PLW2901
            self._pool.add(ConsumeRequest(chunk, process_queue, queue))

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> dict[str, object]:
        return await consume_directly(message, broker_name, self._calls, orderly=False)

    # ---- one chunk ----

    async def _consume(self, request: ConsumeRequest) -> None:
        if self._turn is not None and not await self._turn():
            return
        if request.process_queue.dropped:
            log.debug(
                "%s is no longer owned: %d messages are left to its next owner",
                request.queue,
                len(request.messages),
            )
            return
        request.began = self._calls.clock()
        self._running.add(request)
        try:
            verdict = await self._calls.call(request.messages, request.queue)
        finally:
            self._running.discard(request)
        if request.process_queue.dropped:
            log.info(
                "%s is no longer owned: the results of %d messages are ignored",
                request.queue,
                len(request.messages),
            )
            return
        size = len(request.messages)
        done = min(verdict.accepted, size) if verdict.result is ConsumeResult.SUCCESS else 0
        finished = request.messages
        if done:
            self._calls.stats.succeeded(request.queue.topic, done)
        if done < size:
            self._calls.stats.failed(request.queue.topic, size - done)
            finished = await self._send_back_failed(request, done, verdict.delay_level)
        self._finish(request, finished)

    def _finish(self, request: ConsumeRequest, finished: list[ReceivedMessage]) -> None:
        offset = request.process_queue.remove(finished)
        if offset >= 0 and not request.process_queue.dropped:
            self._offsets.update(request.queue, offset, increase_only=True)

    async def _send_back_failed(
        self, request: ConsumeRequest, done: int, delay_level: int
    ) -> list[ReceivedMessage]:
        """Returns the finished messages of the chunk; a handler soon gets those again that no broker took."""
        failed = request.messages[done:]
        if self._send_back is None:
            log.warning(
                "%d messages of %s failed and are dropped, as BROADCASTING has no retries",
                len(failed),
                request.queue,
            )
            return request.messages
        finished, kept = request.messages[:done], []
        for message in failed:
            if not request.process_queue.contains(message):
                log.info("%r has expired and was sent back already", message)
            elif not await self._send_back(message, delay_level):
                message.reconsume_times += 1
                kept.append(message)
                continue
            finished.append(message)
        if kept:
            self._pool.call_later(RESUBMIT_S, lambda: self.submit(kept, request.process_queue, request.queue))
        return finished

    def _began(self, process_queue: ProcessQueue, message: ReceivedMessage) -> float | None:
        for request in self._running:
            if request.process_queue is process_queue and any(own is message for own in request.messages):
                return request.began
        return None
