"""AutoRenewal: keeps received messages invisible to other members until they are settled. Event loop only.

Each message is renewed when half of its invisible time has passed. A message that is acknowledged, moved to the dead
letters or made visible is settled; while that request runs, its receipt handle does not change.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.pop.receipt_handles import receipt_handle_of

log = logging.getLogger("firearrow.client")

AT_A_TIME = 64
"""Renewals that run at a time at one broker: one that does not answer delays no others."""
AGAIN_S = 1.0
"""Pause after a renewal that failed, at most a tenth of the invisible time."""


@dataclass(slots=True, eq=False)
class _Held:
    """`visible_at_s`: when other members may get the message, by the loop's clock."""

    message: ReceivedMessage
    broker_name: str
    invisible_s: float
    visible_at_s: float
    timer: asyncio.TimerHandle | None = None
    settling: asyncio.Lock = field(default_factory=asyncio.Lock)


class AutoRenewal:
    """`change(message, seconds)` changes the invisible time and gives the message its new receipt handle."""

    def __init__(self, change: Callable[[ReceivedMessage, float], Awaitable[None]]) -> None:
        self._change = change
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, _Held] = {}
        """By the identity of the message."""
        self._renewals: set[asyncio.Task[None]] = set()
        renewed = "broker %s renews messages again, after %d were lost"
        self._losing = StateLog(log, renewed, self._loop.time, quiet_s=FAILING_S)
        self._few: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_A_TIME))
        """By the name of the broker."""

    def hold(self, message: ReceivedMessage) -> None:
        """It was just received. What it waited on the way is part of its invisible time."""
        receipt = receipt_handle_of(message)
        waited_s = min(max(now_ms() - receipt.pop_ms, 0), receipt.invisible_ms) / 1000
        invisible_s = receipt.invisible_ms / 1000
        left_s = invisible_s - waited_s or invisible_s  # none is left: the broker's clock is another
        held = _Held(message, receipt.broker_name, invisible_s, self._loop.time() + left_s)
        self._held[id(message)] = held
        self._renew_in(held, max(invisible_s / 2 - waited_s, 0))

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether it is kept invisible: it was neither settled nor lost."""
        return id(message) in self._held

    @property
    def held(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def settling(self, *messages: ReceivedMessage) -> AsyncIterator[None]:
        """Wait for renewals that run. At the end no message is held any more, unless there was an error."""
        ids = sorted({id(message) for message in messages} & self._held.keys())
        settled = [self._held[one] for one in ids]  # in the same order for all: no two wait for each other
        async with AsyncExitStack() as stack:
            for held in settled:
                await stack.enter_async_context(held.settling)
            yield
            for held in settled:
                self._forget(held)

    def drop(self, messages: Iterable[ReceivedMessage]) -> None:
        """Hold these no longer: they become visible again when their time is over."""
        for message in messages:
            if (held := self._held.get(id(message))) is not None:
                self._forget(held)

    async def close(self) -> None:
        """Messages become visible again when their time is over."""
        self.drop([held.message for held in self._held.values()])
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)

    def _forget(self, held: _Held) -> None:
        self._held.pop(id(held.message), None)
        if held.timer is not None:
            held.timer.cancel()

    def _renew_in(self, held: _Held, seconds: float) -> None:
        held.timer = self._loop.call_later(seconds, self._begin, held)

    def _begin(self, held: _Held) -> None:
        task = self._loop.create_task(self._renew(held))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, held: _Held) -> None:
        async with self._few[held.broker_name], held.settling:
            if not self.holds(held.message):
                return
            asked_at_s = self._loop.time()
            if asked_at_s >= held.visible_at_s:  # the loop was blocked, or too many waited
                self._lost(held, "its time was over first")
                return
            try:
                await self._change(held.message, held.invisible_s)
            except RocketMQError as error:
                if self._loop.time() < held.visible_at_s:  # no other member can have it
                    self._renew_in(held, min(AGAIN_S, held.invisible_s / 10))
                else:
                    self._lost(held, error)
            else:
                held.visible_at_s = asked_at_s + held.invisible_s
                self._losing.is_absent(held.broker_name)
                self._renew_in(held, held.invisible_s / 2)

    def _lost(self, held: _Held, reason: RocketMQError | str) -> None:
        self._forget(held)
        text = "%r could not be renewed, it is delivered again while it may still be handled: %s"
        self._losing.is_there(held.broker_name, text, held.message, reason)
