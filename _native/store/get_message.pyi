from dataclasses import dataclass
from enum import IntEnum

class GetStatus(IntEnum):
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8

@dataclass(slots=True)
class GetResult:
    """Result of `get`. `body`: complete records in sequence; `next_offset`: after the last entry scanned."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int
    body: bytes
    far_behind: bool
    """The last entry examined is farther from the end of the log than counts as in memory (Apache suggests a
    slave)."""
