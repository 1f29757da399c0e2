"""PopHoldService: pops that found nothing wait for news or for their deadline (PopLongPollingService). Loop thread.

News wakes one waiting pop of each group, first come first served, not all: it wakes the next one if it leaves messages
behind. Ordered three ways, as `path.holds` does: by place (news), by tick (deadlines), by peer (closed connections).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from firearrow._native.fastpath.long_polling import BYTES_MAX, REQUEST_BYTES
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Peer
from firearrow.broker.pop.receipt_handles import retry_topic
from firearrow.broker.tables import name_rules

log = logging.getLogger("firearrow.pop")

Place = tuple[str, str, int]
"""Topic, group and queue; queue -1 waits for all of them."""
TICK_MS = 50
HOLD_MS_MAX = 600_000
"""Also for one whose clock is far ahead of ours."""
ANY_QUEUE = -1


@dataclass(slots=True, eq=False)
class HeldPop:
    """`run_again(final)` runs the pop once more; with `final` it answers whatever it finds. `deadline_ms` is of the wall
    clock; `tick` is when we wait no longer, whatever becomes of that clock."""

    place: Place
    peer: Peer
    deadline_ms: int
    run_again: Callable[[bool], None]
    weight: int = REQUEST_BYTES
    tick: int = 0


class PopHoldService:
    """At most `count_max()` held pops of `BYTES_MAX`, `count_max_per_queue()` of a place; `add` says False when it is full."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        count_max: Callable[[], int],
        count_max_per_queue: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._count_max = count_max
        self._count_max_per_queue = count_max_per_queue
        self._by_place: dict[Place, dict[HeldPop, None]] = {}
        self._by_tick: dict[int, dict[HeldPop, None]] = {}
        self._by_peer: dict[Peer, dict[HeldPop, None]] = {}
        self._groups: dict[str, dict[str, int]] = {}
        self._retried: dict[str, tuple[str, str]] = {}
        self._count = 0
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def places(self) -> Collection[Place]:
        """Where anybody waits, now and later."""
        return self._by_place

    def waiting(self, place: Place) -> int:
        return len(self._by_place.get(place, ()))

    def add(self, held: HeldPop) -> bool:
        if self._count >= self._count_max() or self._bytes + held.weight > BYTES_MAX:
            return False
        if self.waiting(held.place) > self._count_max_per_queue():
            return False
        if held.peer not in self._by_peer:
            self._by_peer[held.peer] = {}
            held.peer.on_close(self.forget)
        self._by_peer[held.peer][held] = None
        self._by_place.setdefault(held.place, {})[held] = None
        left_ms = min(max(held.deadline_ms - self._clock.now_ms(), 0), HOLD_MS_MAX)
        held.tick = (self._clock.monotonic_ms() + left_ms) // TICK_MS
        self._by_tick.setdefault(held.tick, {})[held] = None
        self._enter(held.place)
        self._count += 1
        self._bytes += held.weight
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)
        return True

    def messages_arrived(self, queues: set[tuple[str, int]]) -> None:
        """These queues have messages that readers could not see before."""
        if not self._count:
            return
        for topic, queue_id in queues:
            if topic.startswith(name_rules.RETRY_PREFIX):
                retried = self._retried.get(topic)
                if retried is not None:
                    self.retry_held((*retried, ANY_QUEUE))
                    self.retry_held((*retried, queue_id))
                continue
            for group in list(self._groups.get(topic, ())):
                self.retry_held((topic, group, ANY_QUEUE))
                self.retry_held((topic, group, queue_id))

    def retry_held(self, place: Place) -> None:
        """Let the first that waits there try again."""
        waiting = self._by_place.get(place)
        if waiting:
            self._run(next(iter(waiting)), final=False)

    def retry_held_soon(self, place: Place) -> None:
        """As `retry_held`, behind what runs now."""
        if place in self._by_place:
            self._loop.call_soon(self.retry_held, place)

    def forget(self, peer: Peer) -> None:
        """The connection is gone: its pops are dropped."""
        for held in list(self._by_peer.get(peer, ())):
            self._drop(held)
        self._by_peer.pop(peer, None)

    def release_all(self) -> None:
        """Answer every held pop now (the broker stops)."""
        for waiting in list(self._by_place.values()):
            for held in list(waiting):
                self._run(held, final=True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = self._clock.monotonic_ms() // TICK_MS
        for tick in sorted(tick for tick in self._by_tick if tick < now):
            for held in list(self._by_tick.get(tick, ())):
                self._run(held, final=True)
        self._timer = self._loop.call_later(TICK_MS / 1000, self._tick) if self._count else None

    def _run(self, held: HeldPop, final: bool) -> None:
        """A fault of one ends its connection: the others come behind it, and the clock goes on."""
        self._drop(held)
        if held.peer.closed:
            return
        try:
            held.run_again(final)
        except Exception:
            held.peer.close()
            log.exception("a pop that waited for %s failed", held.place)

    def _enter(self, place: Place) -> None:
        topic, group, _ = place
        groups = self._groups.setdefault(topic, {})
        groups[group] = groups.get(group, 0) + 1
        for v2 in (False, True):
            self._retried[retry_topic(topic, group, v2)] = topic, group

    def _leave(self, place: Place) -> None:
        topic, group, _ = place
        groups = self._groups[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            for v2 in (False, True):
                self._retried.pop(retry_topic(topic, group, v2), None)
        if not groups:
            del self._groups[topic]

    def _drop(self, held: HeldPop) -> None:
        self._count -= 1
        self._bytes -= held.weight
        self._by_peer[held.peer].pop(held, None)
        self._leave(held.place)
        waiting, tick = self._by_place[held.place], held.tick
        del waiting[held], self._by_tick[tick][held]
        if not waiting:
            del self._by_place[held.place]
        if not self._by_tick[tick]:
            del self._by_tick[tick]
