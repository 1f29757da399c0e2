"""OffsetStore: how far a group is in each queue, as a consumer sees it; and the table in memory that all stores share.

Offsets are queue offsets, the next message to be consumed. One event loop; nothing here waits but `read` and `persist`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firearrow.client.base.message import MessageQueue

NOT_FOUND = -1
"""Nothing is stored. That it could not be determined is OffsetUnknown instead."""


class ReadOffset(Enum):
    MEMORY_FIRST = "MEMORY_FIRST_THEN_STORE"
    MEMORY = "READ_FROM_MEMORY"
    STORE = "READ_FROM_STORE"
    """What is read goes to memory, too."""


class OffsetStore(Protocol):
    async def load(self) -> None:
        """Before anything else. OffsetUnknown: what is there cannot be read."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """In memory; a frozen entry stays as it is."""

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Late results must not undo this one; `remove` ends it."""

    def cached_offset(self, queue: MessageQueue) -> int:
        """What memory holds, or NOT_FOUND."""

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        """The offset or NOT_FOUND. OffsetUnknown: the store could not tell."""

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """What memory holds of these; without a queue nothing at all happens. Failures are logged: it comes again."""

    async def persist(self, queue: MessageQueue) -> None: ...

    async def persist_final(self, queues: Collection[MessageQueue]) -> None:
        """`persist_all` for the last time: who reads behind it finds these offsets, unless a failure was logged."""

    def remove(self, queue: MessageQueue) -> None:
        """From memory only."""

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """A copy of what memory holds, of one topic or of all."""


@dataclass(slots=True)
class _Entry:
    offset: int
    frozen: bool = False


class OffsetTable:
    """What memory holds: the part of an OffsetStore that knows no disk and no broker."""

    def __init__(self) -> None:
        self._entries: dict[MessageQueue, _Entry] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        entry = self._entries.get(queue)
        if entry is None:
            self._entries[queue] = _Entry(offset)
        elif not entry.frozen and (offset > entry.offset or not increase_only):
            entry.offset = offset

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        self._entries[queue] = _Entry(offset, frozen=True)

    def cached_offset(self, queue: MessageQueue) -> int:
        entry = self._entries.get(queue)
        return NOT_FOUND if entry is None else entry.offset

    def remove(self, queue: MessageQueue) -> None:
        self._entries.pop(queue, None)

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return {
            queue: entry.offset for queue, entry in self._entries.items() if topic in (None, "", queue.topic)
        }
