"""Fakes for tests of consume services: recorders instead of brokers, a clock and a scheduler moved by hand."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.hooks import ConsumeHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import Verdict
from firearrow.client.consume.invoke_listener import ListenerInvoker
from firearrow.client.consume.listeners import Handler, HandlerThreads, Listeners
from tests.support.clock import ManualClock


class ManualScheduler(ManualClock):
    """A clock with `later` and `every` of a service; time passes only in `pass_by`."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self.repeated: list[tuple[float, Callable[[], Awaitable[object]], float]] = []

    def later(self, after_s: float, callback: Callable[[], None]) -> "Timer":
        number = next(self._numbers)
        heapq.heappush(self._due, (self._now_ms + after_s * 1000, number, callback))
        return Timer(self._cancelled, number)

    def every(self, seconds: float, work: Callable[[], Awaitable[object]], first_s: float) -> "Timer":
        self.repeated.append((seconds, work, first_s))
        return Timer(self._cancelled, next(self._numbers))

    @property
    def waits(self) -> list[float]:
        """Seconds until each pending call, rounded."""
        return [
            round((at - self._now_ms) / 1000, 6)
            for at, number, _ in sorted(self._due)
            if number not in self._cancelled
        ]

    async def pass_by(self, seconds: float) -> None:
        """Advance the clock; calls run when they are due, and the loop settles after each."""
        until = self._now_ms + seconds * 1000
        await settled()
        while self._due and self._due[0][0] <= until:
            at, number, callback = heapq.heappop(self._due)
            self.advance_to(at)
            if number not in self._cancelled:
                callback()
                await settled()
        self.advance_to(until)


@dataclass(eq=False)
class Timer:
    cancelled: set[int]
    number: int

    def cancel(self) -> None:
        self.cancelled.add(self.number)


async def settled() -> None:
    """Return when everything has run that needs no passage of time (except threads)."""
    for _ in range(60):
        await asyncio.sleep(0)


@dataclass
class Offsets:
    """Updates as they came: (queue, offset, increase_only)."""

    updates: list[tuple[MessageQueue, int, bool]] = field(default_factory=list)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        self.updates.append((queue, offset, increase_only))

    @property
    def last(self) -> int:
        return self.updates[-1][1]


@dataclass
class Stats:
    calls: list[tuple[str, float]] = field(default_factory=list)
    good: int = 0
    bad: int = 0

    def consumed(self, topic: str, elapsed_s: float) -> None:
        self.calls.append((topic, elapsed_s))

    def succeeded(self, topic: str, messages: int) -> None:
        self.good += messages

    def failed(self, topic: str, messages: int) -> None:
        self.bad += messages


@dataclass
class Back:
    """A send-back that succeeds while `takes` is set."""

    takes: Callable[[ReceivedMessage], bool] = lambda message: True
    given: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        self.given.append((message.queue_offset, delay_level))
        await asyncio.sleep(0)
        return self.takes(message)


def calls_of(
    handler: Handler | dict[str, Handler],
    judge: Callable[[object], Verdict],
    stats: Stats,
    clock: Callable[[], float],
    *,
    threads: HandlerThreads,
    hooks: tuple[ConsumeHook, ...] = (),
    timeout_s: float = 900,
) -> ListenerInvoker:
    """One handler for every topic, or one for each."""
    handler_of = handler.get if isinstance(handler, dict) else lambda topic: handler
    return ListenerInvoker(
        group="workers",
        listeners=Listeners(handler_of, threads),
        judge=judge,
        stats=stats,
        hooks=hooks,
        timeout_s=timeout_s,
        clock=clock,
    )
