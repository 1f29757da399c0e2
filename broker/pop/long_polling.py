"""Holds pops that found nothing until messages arrive or their deadline passes (PopLongPollingService). Loop
thread.

An arrival wakes the first held pop of each group, not all of them; if that pop leaves messages, it wakes the
next. Held pops are indexed three ways, like held pulls in `_native/fastpath/long_polling`: by key (arrivals),
by tick (deadlines) and by peer (closed connections).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from firearrow._native.fastpath.long_polling import BYTES_MAX, REQUEST_BYTES, weight_without_body
from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import HeldAccess, Peer
from firearrow.broker.pop.receipt_handles import retry_topic

log = logging.getLogger("firearrow.pop")

HoldKey = tuple[str, str, int]
"""Topic, group and queue; queue -1 waits for all queues."""
TICK_MS = 50
HOLD_MS_MAX = 600_000
"""Also if the client's deadline is later, because its clock is ahead of the broker's."""
ANY_QUEUE = -1


@dataclass(slots=True, eq=False)
class HeldPop:
    """`run_again(final)` runs the pop again; if `final`, it answers even with nothing.

    `deadline_ms` is wall clock time; `tick` is the same deadline on the monotonic clock, so that a changed
    wall clock does not move it.
    """

    key: HoldKey
    peer: Peer
    deadline_ms: int
    run_again: Callable[[bool], None]
    weight: int = REQUEST_BYTES
    tick: int = 0


class PopHoldService:
    """Holds at most `count_max()` pops of `bytes_max` bytes together, and `count_max_per_queue()` pops of a
    key.

    `add` returns False when a limit is reached.
    """

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
        self._by_key: dict[HoldKey, dict[HeldPop, None]] = {}
        self._by_tick: dict[int, dict[HeldPop, None]] = {}
        self._by_peer: dict[Peer, dict[HeldPop, None]] = {}
        self._groups: dict[str, dict[str, int]] = {}
        self._by_retry_topic: dict[str, tuple[str, str]] = {}
        self._count = 0
        self._bytes = 0
        self.bytes_max = BYTES_MAX
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> Collection[HoldKey]:
        """A live view of the keys that held pops wait for."""
        return self._by_key

    def waiting(self, key: HoldKey) -> int:
        return len(self._by_key.get(key, ()))

    def add(self, held: HeldPop) -> bool:
        if self._count >= self._count_max() or self._bytes + held.weight > self.bytes_max:
            return False
        if self.waiting(held.key) > self._count_max_per_queue():
            return False
        if held.peer not in self._by_peer:
            self._by_peer[held.peer] = {}
            held.peer.on_close(self.forget)
        self._by_peer[held.peer][held] = None
        self._by_key.setdefault(held.key, {})[held] = None
        left_ms = min(max(held.deadline_ms - self._clock.now_ms(), 0), HOLD_MS_MAX)
        held.tick = (self._clock.monotonic_ms() + left_ms) // TICK_MS
        self._by_tick.setdefault(held.tick, {})[held] = None
        self._index_group(held.key)
        self._count += 1
        self._bytes += held.weight
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)
        return True

    def hold(
        self,
        request: RemotingCommand,
        peer: Peer,
        key: HoldKey,
        born_ms: int,
        poll_ms: int,
        access: HeldAccess,
        run: Callable[[bool], None],
    ) -> int | None:
        """Hold a request for `poll_ms` from `born_ms` on, and return None, or the code if it cannot be held.
        `run(final)` pops again, as `HeldPop.run_again`; it may raise Refusal."""
        deadline_ms = born_ms + min(poll_ms, HOLD_MS_MAX)
        if poll_ms <= 0 or deadline_ms <= self._clock.now_ms():
            return ResponseCode.POLLING_TIMEOUT
        generation = access.generation

        def again(final: bool) -> None:
            try:
                access.check(request, peer, generation)
                run(final)
            except Refusal as refusal:
                peer.reply(request.answer(refusal.code, refusal.remark, refusal.ext))
                self.retry_held_soon(key)  # the messages are for the next one
            except Exception as error:  # answer this client; other held pops are not affected
                log.exception("a held pop of (topic, group, queue) %s failed", key)
                peer.reply(request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

        request.held = self.add(HeldPop(key, peer, deadline_ms, again, weight_without_body(request)))
        return None if request.held else ResponseCode.POLLING_FULL

    def messages_arrived(self, queues: set[tuple[str, int]]) -> None:
        """Consumers can now read new messages of these (topic, queue) pairs."""
        if not self._count:
            return
        for topic, queue_id in queues:
            if topic.startswith(name_rules.RETRY_PREFIX):
                topic_and_group = self._by_retry_topic.get(topic)
                if topic_and_group is not None:
                    self.retry_held((*topic_and_group, ANY_QUEUE))
                    self.retry_held((*topic_and_group, queue_id))
                continue
            for group in list(self._groups.get(topic, ())):
                self.retry_held((topic, group, ANY_QUEUE))
                self.retry_held((topic, group, queue_id))

    def retry_held(self, key: HoldKey) -> None:
        """Retry the first pop that is held on the key."""
        waiting = self._by_key.get(key)
        if waiting:
            self._run(next(iter(waiting)), final=False)

    def retry_held_soon(self, key: HoldKey) -> None:
        """As `retry_held`, but after the running callback."""
        if key in self._by_key:
            self._loop.call_soon(self.retry_held, key)

    def forget(self, peer: Peer) -> None:
        """Drop the pops of a closed connection."""
        for held in list(self._by_peer.get(peer, ())):
            self._drop(held)
        self._by_peer.pop(peer, None)

    def release_all(self) -> None:
        """Answer every held pop now, because the broker stops."""
        for waiting in list(self._by_key.values()):
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
        """Run the pop again. An error closes its connection only: the others and the timer continue."""
        self._drop(held)
        if held.peer.closed:
            return
        try:
            held.run_again(final)
        except Exception:
            held.peer.close()
            log.exception("a held pop of (topic, group, queue) %s failed: its connection is closed", held.key)

    def _index_group(self, key: HoldKey) -> None:
        topic, group, _ = key
        groups = self._groups.setdefault(topic, {})
        groups[group] = groups.get(group, 0) + 1
        for v2 in (False, True):
            self._by_retry_topic[retry_topic(topic, group, v2)] = topic, group

    def _unindex_group(self, key: HoldKey) -> None:
        topic, group, _ = key
        groups = self._groups[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            for v2 in (False, True):
                self._by_retry_topic.pop(retry_topic(topic, group, v2), None)
        if not groups:
            del self._groups[topic]

    def _drop(self, held: HeldPop) -> None:
        self._count -= 1
        self._bytes -= held.weight
        self._by_peer[held.peer].pop(held, None)
        self._unindex_group(held.key)
        waiting, tick = self._by_key[held.key], held.tick
        del waiting[held], self._by_tick[tick][held]
        if not waiting:
            del self._by_key[held.key]
        if not self._by_tick[tick]:
            del self._by_tick[tick]
