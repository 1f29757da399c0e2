"""TaskConsumer: receives tasks by POP, keeps them invisible while they wait or run, and settles each. Event loop only.

A task that its worker does not settle comes again to any worker of the group once the worker died.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import NoRoute, RocketMQError
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PopConsumerOptions
from firearrow.client.base.service_state import Startable, now_ms
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.task_producer import DUE_MS, DUE_MS_MAX, TaskOptions, TaskProducer

log = logging.getLogger("firearrow.client")

BATCH_MAX = 32
WAIT_S = 1.0
"""How long a broker holds a pop until tasks come, and so how long a stop may have to wait for its answer."""
PURGE_WAIT_S = 0.3
EARLY_S = 2.0
"""Brokers deliver timers up to a second early: the task waits here for the rest."""
RELEASED_S = 0.1
"""The invisible time of a task that goes back to the group."""
SETTLE_S = 3.0
"""How long a close waits for tasks that are being settled."""


class TaskConsumer(Startable):
    """Any number of callers may receive: they share the pop that is under way."""

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        producer: TaskProducer,
        options: TaskOptions,
        client: ClientOptions,
    ) -> None:
        self._topics = tuple(topics)
        self._producer = producer
        self._options = options
        self._consumer = PopConsumer(
            group,
            client=client,
            options=PopConsumerOptions(
                invisible_s=options.invisible_s, auto_renew=True, from_where=ConsumeFromWhere.FIRST_OFFSET
            ),
        )
        self._waiting: deque[ReceivedMessage] = deque()
        """Popped, but no caller got them yet."""
        self._early: dict[int, tuple[ReceivedMessage, asyncio.TimerHandle]] = {}
        """Tasks that are due soon, by identity."""
        self._popping: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._acks: list[ReceivedMessage] = []
        """Those of the next request."""
        self._next_acks: asyncio.Task[None] | None = None
        self._acking = asyncio.Lock()

    async def start(self) -> Self:
        """Create the topics if need be. ClientError: see `TaskProducer.declare`."""
        self._bind()
        for topic in self._topics:
            await self._producer.declare(topic)
            self._consumer.subscribe(topic)
        await self._consumer.start()
        return self

    async def close(self) -> None:
        """Tasks that wait or run become visible to the group again."""
        await self.release_waiting()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        for task in self._tasks:
            task.cancel()
        await self._consumer.close()

    # ---- receiving ----

    async def receive(self, most: int = 1, wait_s: float = WAIT_S) -> list[ReceivedMessage]:
        """At most `most` tasks; none if none came in time. If the caller is cancelled, the next one gets them.

        BrokerError: the broker refused; TransportError: no broker answers.
        """
        if not self._waiting:
            if self._popping is None or self._popping.done():
                self._popping = self._spawn(self._pop(min(max(most, 1), BATCH_MAX), wait_s))
            if self._arrival is None:
                self._arrival = self.loop.create_future()
            popping = self._popping
            await asyncio.wait((popping, self._arrival), return_when=asyncio.FIRST_COMPLETED)
            if popping.done() and not self._waiting:
                popping.result()
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    @property
    def held(self) -> int:
        """How many tasks wait here or run."""
        return self._consumer.held

    async def purge(self, empty_pops: int = 3) -> None:
        """Acknowledge all tasks that are visible, until `empty_pops` pops in a row have found none."""
        empty = 0
        while empty < empty_pops:
            await self._pop(BATCH_MAX, PURGE_WAIT_S)
            purged = self._take_waiting()
            empty = 0 if purged else empty + 1
            await asyncio.gather(*map(self.ack, purged))

    async def release_waiting(self) -> None:
        """Return to the group what no caller received. Also what a pop brings that is under way."""
        if self._popping is not None:
            await asyncio.wait((self._popping,))
        await self.release(self._take_waiting())

    def _take_waiting(self) -> list[ReceivedMessage]:
        """All that no caller received, also what is not due yet."""
        for _, timer in self._early.values():
            timer.cancel()
        taken = [*self._waiting, *(task for task, _ in self._early.values())]
        self._waiting.clear()
        self._early.clear()
        return taken

    async def _pop(self, most: int, wait_s: float) -> None:
        try:
            messages = await self._consumer.receive(most, wait_s=wait_s)
        except NoRoute as error:  # the first send creates the topic, or the broker is not registered yet
            log.info("%s", error)
            await asyncio.sleep(wait_s)
            return
        for message in messages:
            self._sort(message)

    def _sort(self, message: ReceivedMessage) -> None:
        """Pass it to a caller, now or when it is due, or send it elsewhere."""
        due_ms = _due_ms(message)
        left_s = (due_ms - now_ms()) / 1000
        if message.reconsume_times >= self._options.max_attempts:
            log.info(
                "%r was delivered %d times without being acknowledged: it becomes a dead letter",
                message, message.reconsume_times,
            )  # fmt: skip
            self._spawn(self.dead_letter(message))
        elif left_s <= 0 or message.reconsume_times:
            self._arrive(message)
        elif left_s > EARLY_S and due_ms - message.born_timestamp > self._options.timer_max_s * 1000:
            self._spawn(self._send_on(message, due_ms))
        else:
            self._hold(message, min(left_s, EARLY_S))  # a longer rest comes from clocks that differ

    def _hold(self, message: ReceivedMessage, seconds: float) -> None:
        self._early[id(message)] = message, self.loop.call_later(seconds, self._arrive, message)

    def _arrive(self, message: ReceivedMessage) -> None:
        self._early.pop(id(message), None)
        self._waiting.append(message)
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    # ---- settling ----

    async def ack(self, message: ReceivedMessage) -> None:
        """The task is done. While its broker does not answer, this waits, and the task stays invisible if it can."""
        await self._settle(message, self._ack)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Move the task to the dead letters of the group; waits as `ack` does."""
        await self._settle(message, self._consumer.dead_letter)

    async def release(self, messages: Iterable[ReceivedMessage]) -> None:
        """Return tasks to the group. That counts as an attempt."""
        hide = partial(self._consumer.change_invisible, seconds=RELEASED_S)
        tasks = [self._spawn(self._settle(message, hide)) for message in messages]
        if tasks:
            await asyncio.wait(tasks, timeout=SETTLE_S)

    async def _ack(self, message: ReceivedMessage) -> None:
        """In one request with those that come while the last one is not answered."""
        self._acks.append(message)
        if self._next_acks is None:
            self._next_acks = self._spawn(self._send_acks())
        await asyncio.shield(self._next_acks)

    async def _send_acks(self) -> None:
        async with self._acking:
            messages, self._acks, self._next_acks = self._acks, [], None
            await self._consumer.ack_batch(messages)

    async def _send_on(self, message: ReceivedMessage, due_ms: int) -> None:
        """If a broker refuses the timer, the task waits here."""
        if await self._settle(message, partial(self._producer.send_again, due_ms=due_ms)):
            await self._settle(message, self._ack)
        elif self._consumer.running and self._consumer.holds(message):
            self._hold(message, max(due_ms - now_ms(), 0) / 1000)

    async def _settle(
        self, message: ReceivedMessage, request: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> bool:
        """False: the broker refused, or the task was not kept as long as no broker answered."""
        try:
            await self._consumer.settle([message], partial(request, message))
            return True
        except RocketMQError as error:  # or closed meanwhile
            log.info("%r was not settled, and may be delivered again: %s", message, error)
            return False

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a request failed: %s", error)  # no caller may be there to get it


def _due_ms(message: ReceivedMessage) -> int:
    """0: at once, also if the property has no valid value."""
    text = message.get_property(DUE_MS) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(DUE_MS_MAX)) else 0
