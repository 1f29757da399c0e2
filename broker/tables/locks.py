"""RebalanceLocks: which client of a group may consume a queue in order, and `rebalanceLock.json`.

Apache forgets the locks with its process. Then the first member that is back locks all queues, also those on which
other members still work, because clients trust a lock for 30 s. So the locks are kept over a restart, until
REMEMBERED_MS after their last renewal. Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from firearrow._native.protocol.fastjson import message_queue
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables import json_fields

LOCK_LIFE_MS = 60_000
"""A lock that its owner does not renew expires after this time."""
REMEMBERED_MS = 40_000
"""The same for a lock from before a restart: 30 s that its owner trusts it, and the age of the file."""
FILE_NAME = "rebalanceLock.json"


class LocksFull(Exception):
    """The limit of locks is reached."""


@dataclass(slots=True)
class LockEntry:
    """Monotonic times of the last renewal, and since when `client` has the lock."""

    client: str
    renewed_ms: int
    locked_ms: int


class HeldLock(NamedTuple):
    """Wall clock times in ms."""

    group: str
    queue: MessageQueue
    client: str
    locked_ms: int
    renewed_ms: int


class RebalanceLocks:
    def __init__(
        self,
        clock: Clock,
        *,
        live_ms: int = LOCK_LIFE_MS,
        locks_max: int = 200_000,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._changed = changed
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
                self._groups.setdefault(group, {})[queue] = LockEntry(client, now, now)
                self._count += 1
            elif held.client != client and not self._expired(held, now):
                continue
            else:
                held.locked_ms = held.locked_ms if held.client == client else now
                held.client, held.renewed_ms = client, now
            owned.append(queue)
        if owned:
            self._changed()
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
        self._changed()

    def is_locked(self, group: str, queue: MessageQueue, client: str) -> bool:
        held = self._groups.get(group, {}).get(queue)
        return (
            held is not None and held.client == client and not self._expired(held, self._clock.monotonic_ms())
        )

    def any_locked(self, group: str) -> bool:
        """Whether the group consumes in order now, so that its retries go to the dead-letter queue."""
        now = self._clock.monotonic_ms()
        return any(not self._expired(held, now) for held in self._groups.get(group, {}).values())

    def held(self, group: str = "") -> Iterator[HeldLock]:
        """The locks of a group, or of all."""
        now, ahead_ms = self._clock.monotonic_ms(), self._clock.now_ms() - self._clock.monotonic_ms()
        for name in [group] if group else list(self._groups):
            for queue, held in list(self._groups.get(name, {}).items()):
                if not self._expired(held, now):
                    yield HeldLock(
                        name, queue, held.client, held.locked_ms + ahead_ms, held.renewed_ms + ahead_ms
                    )

    def sweep(self) -> None:
        """Remove expired locks."""
        now = self._clock.monotonic_ms()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if self._expired(held, now)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]

    def to_json(self) -> bytes:
        ahead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        return orjson.dumps(
            {
                "lockTable": {
                    group: [
                        {
                            "brokerName": queue.broker_name,
                            "queueId": queue.queue_id,
                            "topic": queue.topic,
                            "clientId": held.client,
                            "renewedMs": held.renewed_ms + ahead_ms,
                            "lockedMs": held.locked_ms + ahead_ms,
                        }
                        for queue, held in locks.copy().items()
                    ]
                    for group, locks in self._groups.copy().items()
                }
            }
        )

    def load(self, text: bytes) -> None:
        """Replace the locks by those of the file that may still be trusted. ValueError: nothing changed."""
        table = json_fields.members(
            json_fields.members(orjson.loads(text), FILE_NAME).get("lockTable"), "lockTable"
        )
        now, groups, count = self._clock.monotonic_ms(), dict[str, dict[MessageQueue, LockEntry]](), 0
        for group, locks in table.items():
            for lock in json_fields.items(locks, group):
                queue, entry = self._loaded(json_fields.members(lock, group))
                if not self._expired(entry, now) and count < self._locks_max:
                    groups.setdefault(group, {})[queue] = entry
                    count += 1
        self._groups, self._count = groups, count

    def _loaded(self, lock: dict[str, object]) -> tuple[MessageQueue, LockEntry]:
        """The lock so that it expires REMEMBERED_MS after its last renewal, by the wall clock."""
        queue = message_queue(lock)
        if queue is None:
            raise ValueError("a lock names no message queue")
        age_ms = max(self._clock.now_ms() - json_fields.whole(lock.get("renewedMs"), "renewedMs"), 0)
        renewed_ms = self._clock.monotonic_ms() - age_ms - max(self._live_ms - REMEMBERED_MS, 0)
        locked_ms = json_fields.whole(lock.get("lockedMs", lock.get("renewedMs")), "lockedMs")
        ahead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        return queue, LockEntry(json_fields.text(lock, "clientId"), renewed_ms, locked_ms - ahead_ms)

    def _expired(self, held: LockEntry, now: int) -> bool:
        return now - held.renewed_ms > self._live_ms

    def _ensure_capacity(self) -> None:
        if self._count >= self._locks_max:
            self.sweep()
        if self._count >= self._locks_max:
            raise LocksFull(f"{self._count} queues are locked, at most {self._locks_max}")
