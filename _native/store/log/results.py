"""Results of puts and look-ups, and the error of a refused put."""

from enum import IntEnum
from typing import NamedTuple


class PutStatus(IntEnum):
    PUT_OK = 0
    MESSAGE_ILLEGAL = 1
    PROPERTIES_SIZE_EXCEEDED = 2
    SERVICE_NOT_AVAILABLE = 3


class PutRefused(Exception):
    """Nothing was staged. `field` states why: "topic", "queueId", "body", "properties", "batch", "disk",
    "store"."""

    def __init__(self, status: PutStatus, field: str) -> None:
        super().__init__(f"{status.name}: {field}")
        self.status = status
        self.field = field


class PutResult(NamedTuple):
    """Where a message was staged. `end`: the physical offset after it (after the last record of a batch)."""

    physical_offset: int
    queue_offset: int
    end: int
    physical_offsets: tuple[int, ...]
    """One for each record of a batch; a single message has one."""
    store_timestamp: int


class QueueEntry(NamedTuple):
    """One 20-byte entry of a consume queue."""

    physical_offset: int
    size: int
    tags_code: int
