"""QueueFeed: pops a queue for one consumer of kombu, never more than it may have. Loop thread only.

Brokers are asked whether there are messages, and pops wait for none: so no message is lost in a pop whose worker dies
while it waits, and several queues may wait while there is place for a single message.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.integrations.kombu.envelope import (
    RawMessage,
    Unreadable,
    delay_left_s,
    lifetime_s,
    of_message,
)
from firearrow.client.integrations.kombu.leases import Lease, Leases, Window
from firearrow.client.integrations.settlement import Settlement
from firearrow.client.pop.receipt_handles import receipt_handle_of

log = logging.getLogger("firearrow.client")

BATCH = 32
WAIT_S = 10.0
"""How long a broker holds the question; then it is popped anyway."""
EMPTY_S = 0.005
"""Pause after a broker reported messages that others took."""
RETRY_S = 0.5


class Admission:
    """What is done with a popped message before kombu gets it.

    `forward(message, raw, delay_s)` sends a message whose delay is not over.
    """

    def __init__(
        self,
        leases: Leases,
        max_deliveries: int,
        forward: Callable[[ReceivedMessage, RawMessage, float], Awaitable[None]],
    ) -> None:
        self.leases = leases
        self._max_deliveries = max_deliveries
        self._forward = forward

    def admit(self, lease: Lease) -> bool:
        """Whether kombu gets it; otherwise it is settled here."""
        message = lease.message
        if message.reconsume_times >= self._max_deliveries:
            self.leases.dead_letter(lease, f"it was delivered {message.reconsume_times} times")
            return False
        try:
            lease.raw = of_message(message)
        except Unreadable as error:
            self.leases.dead_letter(lease, error)
            return False
        left_s = delay_left_s(message)
        if left_s:
            lease.settlement.spawn(self._wait_again(lease, left_s))
            return False
        if _has_expired(lease):
            self.leases.ack(lease)
            return False
        return True

    async def _wait_again(self, lease: Lease, left_s: float) -> None:
        try:
            await self._forward(lease.message, lease.raw, left_s)
        except RocketMQError as error:
            log.info("%r is delayed again later: %s", lease.message, error)
            self.leases.give_back(lease)
        else:
            self.leases.ack(lease)


def _has_expired(lease: Lease) -> bool:
    """By the broker's clock alone, from when the message became visible."""
    message, lifetime = lease.message, lifetime_s(lease.raw)
    if lifetime is None:
        return False
    return receipt_handle_of(message).pop_ms - message.store_timestamp >= lifetime * 1000


class QueueFeed:
    """`deliver(lease)` is called for each message."""

    def __init__(
        self,
        settlement: Settlement,
        window: Window,
        admission: Admission,
        deliver: Callable[[Lease], None],
    ) -> None:
        self._settlement = settlement
        self._consumer = settlement.consumer
        self._window = window
        self._admission = admission
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._popping = self._stopped = False
        self._failing = StateLog(
            log, "group %s is popped again, after %d failures", self._loop.time, quiet_s=FAILING_S
        )
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Messages of a pop that runs are given back."""
        self._stopped = True
        if not self._popping:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopped:
            await self._window.wait()
            try:
                if await self._pop() or self._stopped:
                    continue
                reported = await self._consumer.wait(WAIT_S)
                await asyncio.sleep(EMPTY_S if reported and not await self._pop() else 0)
            except RocketMQError as error:
                group = self._consumer.group
                self._failing.is_there(group, "group %s: a pop failed: %s", group, error)
                await asyncio.sleep(RETRY_S)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("group %s: a pop failed", self._consumer.group)
                await asyncio.sleep(RETRY_S)

    async def _pop(self) -> int:
        """How many messages came."""
        most = min(self._window.free, BATCH)
        if not most or self._stopped:
            return 0
        self._window.take(most)
        messages: list[ReceivedMessage] = []
        self._popping = True
        try:
            messages = await self._consumer.receive(most, wait_s=0)
        finally:
            self._popping = False
            self._window.release(most - len(messages))
        self._failing.is_absent(self._consumer.group)
        for message in messages:
            lease = self._admission.leases.open(self._settlement, message, self._window)
            if self._stopped:
                self._admission.leases.give_back(lease)
            elif self._admission.admit(lease):
                self._deliver(lease)
        return len(messages)
