"""PopPrefetcher: the pops of one consumer at all brokers of its topics.

`receive` waits for all of them at once. If its caller is cancelled, the next caller gets the
messages of the pop. Event loop only.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NotRunning
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.pop.pop_request import (
    GRACE_S,
    Opener,
    PopRequest,
    PopResult,
    PopStatus,
    notification_command,
    pop_command,
    pop_result,
)

log = logging.getLogger("firearrow.client")
Result = TypeVar("Result")

FULL_PAUSE_S = 1.0
"""Pause after a broker reported too many held requests."""
SLOW_S = 0.5
"""How long a pop that the broker must not hold may take before the next broker is popped."""
EMPTY_PAUSE_S = 0.05
"""Pause after a pop found nothing, if the broker did not wait or had reported messages."""


class Caller(Protocol):
    """The part of ClientInstance that PopPrefetcher needs."""

    async def call_master(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_s: float,
        *,
        topic: str | None = None,
        any_code: bool = False,
    ) -> RemotingCommand: ...


@dataclass(frozen=True, slots=True)
class PopSource:
    """One queue to pop; `pop` has all but the batch size, the invisible time and the wait."""

    pop: PopRequest
    user_topic: str

    @property
    def queue(self) -> MessageQueue:
        return self.pop.queue


class ReceiveOptions(NamedTuple):
    """Options of one `receive`."""

    batch: int
    invisible_ms: int
    wait_s: float


class _Buffered(NamedTuple):
    message: ReceivedMessage
    visible_at_s: float


class PopPrefetcher:
    """`accepts(source, message)` returns whether to deliver a message, and otherwise settles it itself.

    `first(topic, broker)` is awaited before each pop: StartAfterLast.
    """

    def __init__(
        self,
        caller: Caller,
        opener: Opener,
        accepts: Callable[[PopSource, ReceivedMessage], bool],
        now_ms: Callable[[], int],
        first: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._caller = caller
        self._first = first
        self._opener = opener
        self._accepts = accepts
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        answers = "broker %s answers pops again, after %d failures"
        self._failing = StateLog(log, answers, self._loop.time, quiet_s=FAILING_S)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned_pops: dict[MessageQueue, list[asyncio.Task[PopResult]]] = {}
        self._watches: dict[MessageQueue, asyncio.Task[bool]] = {}
        self._attempts: dict[MessageQueue, str] = {}
        self._buffered: deque[_Buffered] = deque()
        self._first_source = 0
        self._closed = False

    async def receive(
        self, sources: Sequence[PopSource], receive_options: ReceiveOptions
    ) -> list[ReceivedMessage]:
        """At most `batch` messages of one source; none if nothing came in time.

        ClientError: no broker answers. NotRunning: closed while waiting.
        """
        deadline = self._loop.time() + receive_options.wait_s
        while True:
            found = self._take_buffered(receive_options.batch)
            if not found:
                found = await self._round(self._rotate(sources), receive_options, deadline)
            left = deadline - self._loop.time()
            if found or left <= 0:
                return found
            if len(sources) > 1:
                await self._wait_for_notification(sources, left)
            else:
                await asyncio.sleep(min(left, EMPTY_PAUSE_S))

    async def wait(self, sources: Sequence[PopSource], wait_s: float) -> bool:
        """Whether a broker reports messages within `wait_s`; none is taken. ClientError: no broker answers."""
        deadline, left_sources = self._loop.time() + wait_s, list(sources)
        while not self._buffered:
            left = max(deadline - self._loop.time(), 0)
            watches = {source: self._watch(source, left) for source in left_sources}
            await asyncio.wait(
                watches.values(), timeout=max(left, SLOW_S), return_when=asyncio.FIRST_COMPLETED
            )
            if self._closed:
                raise NotRunning("the consumer was closed")
            for source, watch in watches.items():
                error = watch.exception() if watch.done() else None
                if error is not None:
                    left_sources.remove(source)
                    if not left_sources:
                        raise error
                elif watch.done() and watch.result():
                    return True
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(min(left, EMPTY_PAUSE_S))
        return True

    async def close(self) -> None:
        """Cancel all requests; messages that brokers still deliver become visible to the group again."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._buffered.clear()

    # ---- popping ----

    def _rotate(self, sources: Sequence[PopSource]) -> list[PopSource]:
        """Start with another source each time."""
        self._first_source += 1
        at = self._first_source % len(sources)
        return [*sources[at:], *sources[:at]]

    async def _round(
        self, sources: Sequence[PopSource], receive_options: ReceiveOptions, deadline: float
    ) -> list[ReceivedMessage]:
        """Pop one source after the other; the broker holds the request only if there is a single source.

        A broker that does not answer delays the others once for SLOW_S; its pop goes on meanwhile.
        """
        failure: ClientError | None = None
        failures = 0
        for source in sources:
            single = len(sources) == 1
            hold_s = max(deadline - self._loop.time(), 0) if single else 0
            try:
                result = await self._await_pop(source, receive_options, hold_s, None if single else SLOW_S)
            except ClientError as error:
                failure, failures = error, failures + 1
                broker = source.queue.broker_name
                self._failing.failed(broker, error, "pop at broker %s failed: %s", broker, error)
                continue
            self._failing.is_absent(source.queue.broker_name)
            if result is None:
                continue
            if result.status is PopStatus.POLLING_FULL:
                await asyncio.sleep(max(min(FULL_PAUSE_S, deadline - self._loop.time()), 0))
            found = self._accept(source, result, receive_options.batch)
            if found:
                return found
        if failure is not None and failures == len(sources):
            raise failure
        return []

    async def _await_pop(
        self, source: PopSource, receive_options: ReceiveOptions, hold_s: float, within_s: float | None
    ) -> PopResult | None:
        """Await an abandoned pop of the source or a new one. None: it is not answered after `within_s`.

        If the caller is cancelled, or the time is over, it becomes abandoned.
        """
        if self._closed:
            raise NotRunning("the consumer is closed")
        abandoned = self._abandoned_pops.get(source.queue)
        if abandoned and within_s is not None and not abandoned[-1].done():
            return None
        task = abandoned.pop() if abandoned else self._spawn(self._pop(source, receive_options, hold_s))
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(task)
        except TimeoutError:
            self._abandon(source.queue, task)
            return None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller is not None and caller.cancelling()):
                raise NotRunning("the consumer was closed") from None
            if not task.cancelled():
                self._abandon(source.queue, task)
            raise

    def _abandon(self, queue: MessageQueue, task: asyncio.Task[PopResult]) -> None:
        self._abandoned_pops.setdefault(queue, []).append(task)
        task.add_done_callback(lambda _: self._swallow_failure(queue, task))

    async def _pop(self, source: PopSource, receive_options: ReceiveOptions, hold_s: float) -> PopResult:
        queue = source.queue
        if self._first is not None:
            await self._first(queue.topic, queue.broker_name)
        attempt = self._attempts.setdefault(queue, uuid.uuid4().hex) if source.pop.in_order else None
        pop = replace(
            source.pop,
            batch=receive_options.batch,
            invisible_ms=receive_options.invisible_ms,
            wait_ms=int(hold_s * 1000),
            attempt=attempt,
        )
        answer = await self._caller.call_master(
            queue.broker_name,
            pop_command(pop, self._now_ms()),
            hold_s + GRACE_S,
            topic=queue.topic,
            any_code=True,
        )
        self._attempts.pop(queue, None)
        return pop_result(answer, pop, self._opener, source.user_topic)

    def _accept(self, source: PopSource, result: PopResult, batch: int) -> list[ReceivedMessage]:
        """The first `batch` accepted messages; the others are buffered."""
        accepted = [message for message in result.messages if self._accepts(source, message)]
        visible_at_s = self._loop.time() + result.invisible_ms / 1000
        self._buffered.extend(_Buffered(message, visible_at_s) for message in accepted[batch:])
        return accepted[:batch]

    def _take_buffered(self, batch: int) -> list[ReceivedMessage]:
        """Buffered messages, except those that are visible to other members again."""
        now_s, found = self._loop.time(), list[ReceivedMessage]()
        while self._buffered and len(found) < batch:
            buffered = self._buffered.popleft()
            if now_s < buffered.visible_at_s:
                found.append(buffered.message)
        return found

    def _swallow_failure(self, queue: MessageQueue, task: asyncio.Task[PopResult]) -> None:
        """Forget an abandoned pop that failed: no caller waits for its error."""
        abandoned = self._abandoned_pops.get(queue, [])
        if task in abandoned and (task.cancelled() or task.exception() is not None):
            abandoned.remove(task)

    # ---- wait for several brokers ----

    async def _wait_for_notification(self, sources: Sequence[PopSource], wait_s: float) -> None:
        """Wait until a broker reports messages, or the time is over."""
        watches = [self._watch(source, wait_s) for source in sources]
        done, _ = await asyncio.wait(watches, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if done and not self._closed:
            reported = any(not task.exception() and task.result() for task in done if not task.cancelled())
            await asyncio.sleep(min(wait_s, EMPTY_PAUSE_S if reported else FULL_PAUSE_S))

    def _watch(self, source: PopSource, wait_s: float) -> asyncio.Task[bool]:
        watch = self._watches.get(source.queue)
        if watch is None or watch.done():
            watch = self._watches[source.queue] = self._spawn(self._has_messages(source, wait_s))
            # Retrieve the exception: maybe no caller waits any more.
            watch.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return watch

    async def _has_messages(self, source: PopSource, wait_s: float) -> bool:
        pop = replace(source.pop, wait_ms=int(wait_s * 1000))
        command = notification_command(pop, self._now_ms())
        answer = await self._caller.call_master(
            source.queue.broker_name, command, wait_s + GRACE_S, topic=source.queue.topic
        )
        return answer.ext.get("hasMsg") == "true"

    def _spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
