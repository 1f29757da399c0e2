"""TaskConsumer: receives tasks by POP, keeps them invisible while they wait or run, and settles each. Event loop only.

A task that its worker does not settle comes again to any worker of the group once the worker died.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import BrokerError, ClientError, NoRoute, RocketMQError
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PopConsumerOptions
from firearrow.client.base.service_state import Startable, now_ms
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.task_producer import DUE_MS, TaskOptions, TaskProducer

log = logging.getLogger("firearrow.client")

BATCH_MAX = 32
WAIT_S = 1.0
"""How long a broker holds a pop until tasks come, and so how long a stop may have to wait for its answer."""
PURGE_WAIT_S = 0.3
EARLY_S = 2.0
"""Brokers deliver timers up to a second early: the task waits here for the rest."""
RELEASED_S = 0.1
"""The invisible time of a task that goes back to the group."""
AGAIN_S = 1.0
"""Pause after a task could not be settled."""
SETTLE_S = 3.0
"""How long a close waits for tasks that are being settled."""
DIGITS_MAX = 15


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
        self._settling: set[asyncio.Task[None]] = set()

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
        if self._settling:
            await asyncio.wait(self._settling, timeout=SETTLE_S)
        for task in self._settling:
            task.cancel()
        await self._consumer.close()

    # ---- receiving ----

    async def receive(self, most: int = 1, wait_s: float = WAIT_S) -> list[ReceivedMessage]:
        """At most `most` tasks; none if none came in time. If the caller is cancelled, the next one gets them.

        BrokerError: the broker refused; TransportError: no broker answers.
        """
        if not self._waiting:
            if self._popping is None:
                self._popping = self.loop.create_task(self._pop(min(max(most, 1), BATCH_MAX), wait_s))
                self._popping.add_done_callback(self._popped)
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
        while self._popping is not None:
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

    def _popped(self, popping: asyncio.Task[None]) -> None:
        self._popping = None
        if not popping.cancelled() and (error := popping.exception()) is not None:
            log.debug("pop failed: %s", error)  # no caller may be there to get it

    async def _pop(self, most: int, wait_s: float) -> None:
        try:
            messages = await self._consumer.receive(most, wait_s=wait_s)
        except (
            NoRoute
        ) as error:  # the topic is created by the first send, or the broker is not registered yet
            log.info("%s", error)
            await asyncio.sleep(wait_s)
            return
        for message in messages:
            self._sort(message)

    def _sort(self, message: ReceivedMessage) -> None:
        """Pass it to a caller, now or when it is due, or send it elsewhere."""
        due_ms, born_ms = _due_ms(message), message.born_timestamp
        left_s = (due_ms - now_ms()) / 1000
        if message.reconsume_times >= self._options.max_attempts:
            log.info(
                "%r was delivered %d times without being acknowledged: it becomes a dead letter",
                message, message.reconsume_times,
            )  # fmt: skip
            self._spawn(self.dead_letter(message))
        elif left_s <= 0 or message.reconsume_times:
            self._arrive(message)
        elif left_s > EARLY_S and due_ms - born_ms > self._options.timer_max_s * 1000:
            self._spawn(self._settle(message, partial(self._send_on, due_ms=due_ms)))
        else:  # a longer rest comes from clocks that differ
            timer = self.loop.call_later(min(left_s, EARLY_S), self._arrive, message)
            self._early[id(message)] = message, timer

    def _arrive(self, message: ReceivedMessage) -> None:
        self._early.pop(id(message), None)
        self._waiting.append(message)
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    # ---- settling ----

    async def ack(self, message: ReceivedMessage) -> None:
        """The task is done. While its broker does not answer, this waits, and the task stays invisible if it can."""
        await self._settle(message, self._consumer.ack)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Move the task to the dead letters of the group; waits as `ack` does."""
        await self._settle(message, self._consumer.dead_letter)

    async def release(self, messages: Iterable[ReceivedMessage]) -> None:
        """Return tasks to the group. That counts as an attempt."""
        hide = partial(self._consumer.change_invisible, seconds=RELEASED_S)
        tasks = [self._spawn(self._settle(message, hide)) for message in messages]
        if tasks:
            await asyncio.wait(tasks, timeout=SETTLE_S)

    async def _send_on(self, message: ReceivedMessage, due_ms: int) -> None:
        await self._producer.send_again(message, due_ms)
        await self._consumer.ack(message)

    async def _settle(
        self, message: ReceivedMessage, request: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await request(message)
                return
            except BrokerError as error:
                log.info("%r was not settled, and may be delivered again: %s", message, error)
                return
            except ClientError as error:
                if not self._consumer.holds(message):
                    log.info("%r was not settled in time, and is delivered again: %s", message, error)
                    return
            except RocketMQError as error:  # closed meanwhile
                log.info("%r was not settled, and is delivered again: %s", message, error)
                return
            await asyncio.sleep(AGAIN_S)

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task


def _due_ms(message: ReceivedMessage) -> int:
    """0: at once, also if the property has no valid value."""
    text = message.get_property(DUE_MS) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else 0
