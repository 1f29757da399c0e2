"""OrderlyService: consumes each locked queue in order, one handler at a time.

A failed batch is put back and the queue pauses; only commits advance offsets. Event loop only; handlers may
run in threads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import Cancellable, ConsumeResult, Every, OffsetSink, Verdict
from firearrow.client.consume.direct import consume_directly
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.worker_pool import WorkerPool
from firearrow.client.rebalance.process_queue import ProcessQueue

log = logging.getLogger("firearrow.client")

LOCK_FIRST_S, LOCK_EVERY_S = 1.0, 20.0
TRY_LOCK_S, TRY_LOCK_RETRY_S = 0.1, 0.01
LOCKED_S, LOCK_REFUSED_S, NEXT_PASS_S = 0.01, 3.0, 0.01
SUSPEND_S_MIN, SUSPEND_S_MAX = 0.01, 30.0
CONTINUOUS_S_MAX = 60.0
"""How long one queue may occupy a worker before other queues get it."""


class ConsumeRequest(NamedTuple):
    process_queue: ProcessQueue
    queue: MessageQueue


class BrokerLocks(Protocol):
    """The broker's locks on the queues of this member.

    `unlock_all` is called last, after the offsets are stored where the next owner reads them.
    """

    async def lock(self, queue: MessageQueue, /) -> bool: ...
    async def lock_all(self) -> None: ...
    async def unlock_all(self) -> None: ...


class OrderlyService:
    """`locks` None: BROADCASTING, no locks are needed.

    `publish(message)` sends a message that failed too often to the retry topic, where the broker makes it a
    dead letter, and returns whether a broker took it.

    Without `auto_commit`, SUCCESS only continues, and taken messages accumulate until COMMIT or ROLLBACK.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        offsets: OffsetSink,
        locks: BrokerLocks | None,
        publish: Callable[[ReceivedMessage], Awaitable[bool]],
        max_reconsume_times: int,
        every: Every,
        suspend_s: float = 1.0,
        auto_commit: bool = True,
    ) -> None:
        self._calls = handlers.calls
        self._threads = handlers.threads
        self._turn = handlers.turn
        self._batch_size = handlers.batch_size
        self._offsets = offsets
        self._locks = locks
        self._publish = publish
        self._max_reconsume_times = max_reconsume_times
        self._every = every
        self._suspend_s = suspend_s
        self._auto_commit = auto_commit
        self._pool: WorkerPool[ConsumeRequest] = WorkerPool(handlers.at_a_time, self._consume, handlers.later)
        self._queue_locks: WeakValueDictionary[MessageQueue, asyncio.Lock] = WeakValueDictionary()
        self._renewal: Cancellable | None = None

    async def start(self) -> None:
        if self._locks is not None:
            self._renewal = self._every(LOCK_EVERY_S, self._locks.lock_all, LOCK_FIRST_S)

    async def stop(self, within_s: float) -> None:
        await self._pool.stop(within_s)
        if self._renewal is not None:
            self._renewal.cancel()
        self._threads.close()
        if self._locks is not None:
            await self._locks.unlock_all()

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        dispatch: bool,
    ) -> None:
        """A worker of the queue finds new messages itself; only `dispatch` starts one."""
        if dispatch:
            self._pool.add(ConsumeRequest(process_queue, queue))

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> dict[str, object]:
        return await consume_directly(
            message, broker_name, self._calls, orderly=True, auto_commit=self._auto_commit
        )

    # ---- one queue ----

    async def _consume(self, request: ConsumeRequest) -> None:
        lock = self._queue_locks.setdefault(request.queue, asyncio.Lock())
        async with lock:
            if request.process_queue.dropped:
                return
            if not self._is_locked(request.process_queue):
                self._try_lock_after(TRY_LOCK_S, request)
                return
            ends = self._calls.clock() + CONTINUOUS_S_MAX
            more = True
            while more:
                more = await self._step(request, ends)
                await asyncio.sleep(0)  # let other tasks run between two calls

    async def _step(self, request: ConsumeRequest, ends: float) -> bool:
        """Call the handler once. Returns whether to continue at once."""
        process_queue = request.process_queue
        if process_queue.dropped or self._pool.stopped:
            return False
        if not self._is_locked(process_queue):
            self._try_lock_after(TRY_LOCK_RETRY_S, request)
            return False
        if self._calls.clock() > ends:
            self._pool.add_later(NEXT_PASS_S, request)
            return False
        if self._turn is not None and process_queue.has_messages and not await self._turn():
            return False
        messages = self._take(request)
        if not messages:
            return False
        async with process_queue.consume_lock:
            if process_queue.dropped:
                return False
            verdict = await self._calls.call(messages, request.queue)
        if process_queue.dropped:
            log.info(
                "%s is no longer owned: the results of %d messages are ignored", request.queue, len(messages)
            )
            return False
        return await self._settle(request, messages, verdict)

    def _take(self, request: ConsumeRequest) -> list[ReceivedMessage]:
        """The next messages with the same handler."""
        messages = request.process_queue.take(self._batch_size)
        if messages:
            self._calls.restore_topics(messages, request.queue)
            count = self._calls.same_topic(messages, request.queue)
            if count < len(messages):
                request.process_queue.make_to_consume_again(messages[count:])
                return messages[:count]
        return messages

    async def _settle(
        self, request: ConsumeRequest, messages: list[ReceivedMessage], verdict: Verdict
    ) -> bool:
        """Apply the verdict. Returns whether to continue with the queue."""
        process_queue, queue = request
        result, stats = verdict.result, self._calls.stats
        if result is ConsumeResult.SUSPEND:
            stats.failed(queue.topic, len(messages))
            if await self._must_repeat(messages):
                process_queue.make_to_consume_again(messages)
                self._suspend(request, verdict)
                return False
            if not self._auto_commit:
                return True
        elif self._auto_commit:
            if result is not ConsumeResult.SUCCESS:
                log.warning(
                    "%s: %s has no meaning with auto_commit and counts as SUCCESS", queue, result.name
                )
            stats.succeeded(queue.topic, len(messages))
        elif result is ConsumeResult.SUCCESS:
            stats.succeeded(queue.topic, len(messages))
            return True
        elif result is ConsumeResult.ROLLBACK:
            process_queue.rollback()
            self._suspend(request, verdict)
            return False
        offset = process_queue.commit()
        if offset >= 0 and not process_queue.dropped:
            self._offsets.update(queue, offset)
        return True

    async def _must_repeat(self, messages: list[ReceivedMessage]) -> bool:
        """Count the failure. False: all messages failed too often and are in the retry topic now.

        As in Java, if one must be repeated, all are, even those already published. Only this client counts
        failures.
        """
        repeat = False
        for message in messages:
            if message.reconsume_times < self._max_reconsume_times or not await self._publish(message):
                message.reconsume_times += 1
                repeat = True
        return repeat

    def _suspend(self, request: ConsumeRequest, verdict: Verdict) -> None:
        seconds = self._suspend_s if verdict.suspend_s is None else verdict.suspend_s
        self._pool.add_later(min(max(seconds, SUSPEND_S_MIN), SUSPEND_S_MAX), request)

    # ---- the broker's lock ----

    def _is_locked(self, process_queue: ProcessQueue) -> bool:
        if self._locks is None:
            return True
        return process_queue.locked and not process_queue.lock_expired(self._calls.clock())

    def _try_lock_after(self, after_s: float, request: ConsumeRequest) -> None:
        log.debug("%s is not locked by this member", request.queue)
        self._pool.call_later(after_s, lambda: self._pool.spawn(self._try_lock(request)))

    async def _try_lock(self, request: ConsumeRequest) -> None:
        if request.process_queue.dropped or self._locks is None:
            return
        locked = False
        try:
            locked = await self._locks.lock(request.queue)
        finally:
            self._pool.add_later(LOCKED_S if locked else LOCK_REFUSED_S, request)
