"""Results of puts and look-ups, and the error of a refused put."""

from enum import IntEnum, StrEnum
from typing import NamedTuple


class PutStatus(IntEnum):
    PUT_OK = 0
    MESSAGE_ILLEGAL = 1
    PROPERTIES_SIZE_EXCEEDED = 2
    SERVICE_NOT_AVAILABLE = 3


class WriteRefusal(StrEnum):
    """Why a store that could take messages takes none: another broker writes the log, or perhaps does."""

    SLAVE = "this broker is a slave, whose log has what its master's has"
    UNCERTAIN = "name servers are asked whether another broker is the master"
    HANDOVER = "another broker becomes the master"
    FENCED = "another broker is the master"


class PutRefused(Exception):
    """Nothing was staged. `field` states why: "topic", "queueId", "body", "properties", "batch", "disk",
    "store", or the reason for which the store takes nothing."""

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
