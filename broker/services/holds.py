"""Holds: pulls that found nothing wait for news of their queue or for their deadline, then run once more. Loop thread.

Three indexes of the same pulls, each left at once when a pull goes: by queue (news), by tenth of a second (deadlines,
so at most that late), by peer (closed connections). A dict serves as an ordered set.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock
from firearrow.broker.peer import Peer

Queue = tuple[str, int]
TICK_MS = 100
BYTES_MAX = 512 << 20
"""About what held requests may take in memory, however many they are."""
REQUEST_BYTES = 2048
"""One without long texts."""
Key = TypeVar("Key")


@dataclass(slots=True, eq=False)
class Held:
    """`again()` runs the pull a last time and answers it; `wants()` is false while nothing new would match."""

    queue: Queue
    peer: Peer
    deadline_ms: int
    wants: Callable[[], bool]
    again: Callable[[], None]
    weight: int = REQUEST_BYTES


def lightened(request: RemotingCommand) -> int:
    """About how many bytes the request takes while it waits, which it does without its body."""
    request.body = b""
    return REQUEST_BYTES + sum(len(name) + len(text) for name, text in request.ext.items())


class Holds:
    """At most `most()` held pulls, of `BYTES_MAX`; `add` says False when there is no room."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, most: Callable[[], int]) -> None:
        self._loop = loop
        self._clock = clock
        self._most = most
        self._by_queue: dict[Queue, dict[Held, None]] = {}
        self._by_tick: dict[int, dict[Held, None]] = {}
        self._by_peer: dict[Peer, dict[Held, None]] = {}
        self._count = 0
        self._bytes = 0
        self._ticked = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, held: Held) -> bool:
        if self._count >= self._most() or self._bytes + held.weight > BYTES_MAX:
            return False
        if held.peer not in self._by_peer:
            self._by_peer[held.peer] = {}
            held.peer.on_close(self.forget)
        self._by_peer[held.peer][held] = None
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_tick.setdefault(held.deadline_ms // TICK_MS, {})[held] = None
        self._count += 1
        self._bytes += held.weight
        if self._timer is None:
            self._ticked = self._clock.monotonic_ms() // TICK_MS
            self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)
        return True

    def news(self, queues: set[Queue]) -> None:
        """These queues have messages that readers could not see before."""
        for queue in queues:
            for held in list(self._by_queue.get(queue, ())):
                if held.wants():
                    self._run(held)

    def forget(self, peer: Peer) -> None:
        """The connection is gone: its pulls are dropped."""
        for held in list(self._by_peer.get(peer, ())):
            self._drop(held)
        self._by_peer.pop(peer, None)

    def release_all(self) -> None:
        """Answer every held pull now (the broker stops)."""
        for waiting in list(self._by_queue.values()):
            for held in list(waiting):
                self._run(held)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = self._clock.monotonic_ms() // TICK_MS
        for tick in range(self._ticked, now):
            for held in list(self._by_tick.get(tick, ())):
                self._run(held)
        self._ticked = now
        self._timer = self._loop.call_later(TICK_MS / 1000, self._tick) if self._count else None

    def _run(self, held: Held) -> None:
        self._drop(held)
        if not held.peer.closed:
            held.again()

    def _drop(self, held: Held) -> None:
        self._count -= 1
        self._bytes -= held.weight
        self._by_peer[held.peer].pop(held, None)
        _leave(self._by_queue, held.queue, held)
        _leave(self._by_tick, held.deadline_ms // TICK_MS, held)


def _leave(index: dict[Key, dict[Held, None]], key: Key, held: Held) -> None:
    group = index[key]
    del group[held]
    if not group:
        del index[key]
