"""TaskConsumer: receives tasks by POP, keeps them invisible while they wait or run, and settles each. Event loop only.

A task that its worker does not settle comes again to any worker of the group once the worker died.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import NoRoute, RocketMQError
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PopConsumerOptions
from firearrow.client.base.service_state import Startable, now_ms
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.settlement import Settlement
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
SEND_ON_S = 60.0
"""When a task that could not be sent on is sent again."""
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
        self._settlement = Settlement(self._consumer)
        self._spawn = self._settlement.spawn
        self._waiting: deque[ReceivedMessage] = deque()
        """Popped, but no caller got them yet."""
        self._early: dict[int, tuple[ReceivedMessage, asyncio.TimerHandle]] = {}
        """Tasks that are due soon, by identity."""
        self._popping: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[None] | None = None

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
        await self._settlement.finish(SETTLE_S)
        await self._settlement.close()

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
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        return [message for message in taken if self._is_kept(message)]

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
        elif left_s <= 0:
            self._arrive(message)
        elif left_s > EARLY_S and due_ms - message.born_timestamp > self._options.timer_max_s * 1000:
            self._spawn(self._send_on(message, due_ms))
        else:
            rest_s = min(left_s, EARLY_S)  # a longer one comes from clocks that differ
            self._hold(message, rest_s, self._arrive)

    def _hold(
        self, message: ReceivedMessage, seconds: float, then: Callable[[ReceivedMessage], None]
    ) -> None:
        def is_over() -> None:
            del self._early[id(message)]
            if self._is_kept(message):
                then(message)

        self._early[id(message)] = message, self.loop.call_later(seconds, is_over)

    def _is_kept(self, message: ReceivedMessage) -> bool:
        """False: no broker answered for so long that another worker gets it."""
        return self._consumer.running and self._consumer.holds(message)

    def _arrive(self, message: ReceivedMessage) -> None:
        self._waiting.append(message)
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    # ---- settling ----

    async def ack(self, message: ReceivedMessage) -> None:
        """The task is done. While its broker does not answer, this waits, and the task stays invisible if it can."""
        await self._settlement.ack(message)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Move the task to the dead letters of the group; waits as `ack` does."""
        await self._settlement.dead_letter(message)

    async def release(self, messages: Iterable[ReceivedMessage]) -> None:
        """Return tasks to the group. That counts as an attempt."""
        tasks = [self._spawn(self._settlement.release(message, RELEASED_S)) for message in messages]
        if tasks:
            await asyncio.wait(tasks, timeout=SETTLE_S)

    def forget(self, message: ReceivedMessage) -> None:
        """No caller has the task any more: unless it was settled, it comes again after its invisible time."""
        self._consumer.not_given([message])

    async def _send_on(self, message: ReceivedMessage, due_ms: int) -> None:
        """While a broker refuses the timer, or none answers, the task waits here."""
        try:
            await self._producer.send_again(message, due_ms)
        except RocketMQError as error:  # or closed meanwhile
            log.info("%r waits here, as it cannot be sent on: %s", message, error)
            left_s = max(due_ms - now_ms(), 0) / 1000
            self._hold(message, min(left_s, SEND_ON_S), self._sort)
        else:
            await self._settlement.ack(message)


def _due_ms(message: ReceivedMessage) -> int:
    """0: at once, also if the property has no valid value."""
    text = message.get_property(DUE_MS) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(DUE_MS_MAX)) else 0
