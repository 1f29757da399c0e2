"""Deliveries: where a subscriber's messages come from, and where their acknowledgements go. Event loop only.

PopDeliveries pops them: each is settled alone, and stays invisible to other members while it is held here.
BroadcastDeliveries pulls them, and stores how far it is in a local file.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.integrations.faststream.configs import POP_MAX, Consumption
from firearrow.client.integrations.faststream.message import Acknowledger
from firearrow.client.pop.pop_service import DELAYS_S

log = logging.getLogger("firearrow.client")

AT_ONCE_S = 0.001


class Deliveries(Acknowledger, Protocol):
    """Each fetched message is `finished` once: its handler has returned, or `handled` is false."""

    async def start(self) -> None:
        """ConfigError."""

    async def fetch(self, count: int, wait_s: float) -> list[ReceivedMessage]:
        """At most `count` messages, none after `wait_s`. RocketMQError. A cancelled one loses nothing."""

    def finished(self, messages: Sequence[ReceivedMessage], *, handled: bool = True) -> None: ...

    async def close(self) -> None:
        """Messages that were not handled come again at once."""


class PopDeliveries:
    """The consumer renews the invisible time of messages that wait for a handler, or are handled."""

    def __init__(self, consumer: PopConsumer, consumption: Consumption) -> None:
        self._consumer = consumer
        self._consumption = consumption
        self._fetched: dict[int, ReceivedMessage] = {}

    async def start(self) -> None:
        await self._consumer.start()

    async def fetch(self, count: int, wait_s: float) -> list[ReceivedMessage]:
        """A broker pops up to POP_MAX at a time: there may be more as long as it pops as many as were asked for."""
        found: list[ReceivedMessage] = []
        while (left := min(count - len(found), POP_MAX)) > 0:
            popped = await self._consumer.receive(left, wait_s=0 if found else wait_s)
            self._fetched |= {id(message): message for message in popped}
            found += popped
            if len(popped) < left:
                break
        return found

    def finished(self, messages: Sequence[ReceivedMessage], *, handled: bool = True) -> None:
        """What was handled, but not settled, comes again after the invisible time."""
        if handled:
            for message in messages:
                self._fetched.pop(id(message), None)
            self._consumer.not_given(messages)

    async def close(self) -> None:
        left = [message for message in self._fetched.values() if self._consumer.holds(message)]
        self._fetched.clear()
        released = await asyncio.gather(*(self._hide(one, AT_ONCE_S) for one in left), return_exceptions=True)
        for message, error in zip(left, released, strict=True):
            if isinstance(error, RocketMQError):
                log.info("%r was not released, it comes again after its invisible time: %s", message, error)
            elif error is not None:
                raise error
        await self._consumer.close()

    async def ack(self, messages: Sequence[ReceivedMessage]) -> None:
        """While its broker does not answer, this waits, as the other two do, and the messages stay invisible."""
        if len(messages) == 1:
            await self._consumer.settle(messages, partial(self._consumer.ack, messages[0]))
        else:
            await self._consumer.settle(messages, partial(self._consumer.ack_batch, messages))

    async def nack(self, messages: Sequence[ReceivedMessage], delay_s: float | None) -> None:
        for message in messages:
            if message.reconsume_times < self._consumption.max_reconsume_times:
                seconds = self._delay_s(message) if delay_s is None else delay_s
                await self._consumer.settle([message], partial(self._hide, message, seconds))
            else:
                log.info("%r failed %d times and is a dead letter now", message, message.reconsume_times + 1)
                await self._dead_letter(message)

    async def reject(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await self._dead_letter(message)

    async def _dead_letter(self, message: ReceivedMessage) -> None:
        await self._consumer.settle([message], partial(self._consumer.dead_letter, message))

    async def _hide(self, message: ReceivedMessage, seconds: float) -> None:
        await self._consumer.change_invisible(message, max(seconds, AT_ONCE_S))

    def _delay_s(self, message: ReceivedMessage) -> float:
        fixed = self._consumption.retry_delay_s
        return DELAYS_S[min(message.reconsume_times, len(DELAYS_S) - 1)] if fixed is None else fixed


class BroadcastDeliveries:
    """The next messages are pulled when all were handled: only then is the position after them stored."""

    def __init__(self, consumer: PullConsumer) -> None:
        self._consumer = consumer
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._all_handled = True

    async def start(self) -> None:
        await self._consumer.start()

    async def fetch(self, count: int, wait_s: float) -> list[ReceivedMessage]:
        await self._idle.wait()
        await self._consumer.commit()
        messages = await self._consumer.poll(wait_s, count)
        if messages:
            self._at_work = len(messages)
            self._idle.clear()
        return messages

    def finished(self, messages: Sequence[ReceivedMessage], *, handled: bool = True) -> None:
        self._at_work -= len(messages)
        self._all_handled &= handled
        if self._at_work == 0:
            self._idle.set()

    async def close(self) -> None:
        if self._idle.is_set() and self._all_handled:
            await self._consumer.commit()
        await self._consumer.close()

    async def ack(self, messages: Sequence[ReceivedMessage]) -> None:
        """Nothing to do: the position is stored."""

    async def nack(self, messages: Sequence[ReceivedMessage], delay_s: float | None) -> None:
        log.info("%r failed: a broadcast does not come again", messages[0])

    async def reject(self, messages: Sequence[ReceivedMessage]) -> None:
        log.info("%r failed: a broadcast does not become a dead letter", messages[0])
