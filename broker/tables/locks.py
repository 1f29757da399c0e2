"""RebalanceLocks: which client of a group may consume a queue in order. In memory only; loop thread."""

from collections.abc import Iterable
from dataclasses import dataclass

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.fastjson import MessageQueue

LOCK_LIFE_MS = 60_000
"""A lock that its owner does not renew expires after this time."""


class LocksFull(Exception):
    """The limit of locks is reached."""


@dataclass(slots=True)
class LockEntry:
    client: str
    renewed_ms: int


class RebalanceLocks:
    def __init__(self, clock: Clock, *, live_ms: int = LOCK_LIFE_MS, locks_max: int = 200_000) -> None:
        self._clock = clock
        self._live_ms = live_ms
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, LockEntry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock the queues or renew their locks; returns those that `client` owns now. LocksFull."""
        now = self._clock.monotonic_ms()
        owned: list[MessageQueue] = []
        for queue in dict.fromkeys(queues):
            held = self._groups.get(group, {}).get(queue)
            if held is None:
                self._ensure_capacity()
                self._groups.setdefault(group, {})[queue] = LockEntry(client, now)
                self._count += 1
            elif held.client != client and not self._expired(held, now):
                continue
            else:
                held.client, held.renewed_ms = client, now
            owned.append(queue)
        return owned

    def unlock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock those of the queues that `client` owns."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client == client:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_locked(self, group: str, queue: MessageQueue, client: str) -> bool:
        held = self._groups.get(group, {}).get(queue)
        return (
            held is not None and held.client == client and not self._expired(held, self._clock.monotonic_ms())
        )

    def any_locked(self, group: str) -> bool:
        """Whether the group consumes in order now, so that its retries go to the dead-letter queue."""
        now = self._clock.monotonic_ms()
        return any(not self._expired(held, now) for held in self._groups.get(group, {}).values())

    def sweep(self) -> None:
        """Remove expired locks."""
        now = self._clock.monotonic_ms()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if self._expired(held, now)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]

    def _expired(self, held: LockEntry, now: int) -> bool:
        return now - held.renewed_ms > self._live_ms

    def _ensure_capacity(self) -> None:
        if self._count >= self._locks_max:
            self.sweep()
        if self._count >= self._locks_max:
            raise LocksFull(f"{self._count} queues are locked, at most {self._locks_max}")
