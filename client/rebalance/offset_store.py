"""OffsetStore: the Protocol of consumer offsets, and the table in memory that all stores share.

An offset is the queue offset of the next message to consume. Event loop only.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firearrow.client.base.message import MessageQueue

NOT_FOUND = -1
"""No offset is stored. A failed read raises OffsetUnknown instead."""


class ReadOffset(Enum):
    MEMORY_FIRST = "MEMORY_FIRST_THEN_STORE"
    MEMORY = "READ_FROM_MEMORY"
    STORE = "READ_FROM_STORE"
    """The memory gets the stored offset as well."""


class OffsetStore(Protocol):
    async def load(self) -> None:
        """Called before anything else. OffsetUnknown: the stored offsets cannot be read."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """In memory. A frozen entry stays as it is."""

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that later updates do not change, until `remove`."""

    def cached_offset(self, queue: MessageQueue) -> int:
        """The offset in memory, or NOT_FOUND."""

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        """The offset or NOT_FOUND. OffsetUnknown: the store could not be read."""

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Store the offsets in memory of these queues; nothing if there are none.

        Failures are logged and retried.
        """

    async def persist(self, queue: MessageQueue) -> None: ...

    async def persist_final(self, queues: Collection[MessageQueue]) -> None:
        """The last `persist_all`: later readers find these offsets, unless a failure was logged."""

    def remove(self, queue: MessageQueue) -> None:
        """From memory only."""

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """A copy of the offsets in memory, of one topic or of all."""


@dataclass(slots=True)
class _Entry:
    offset: int
    frozen: bool = False


class OffsetTable:
    """The offsets in memory: the part of an OffsetStore without disk and broker."""

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
