from enum import IntEnum
from typing import NamedTuple, final

class FaultKind(IntEnum):
    BAD_CRC = 1
    NO_ENTRY = 2
    WRONG_ENTRY = 3
    WRONG_TAGS = 4
    LOST_RECORD = 5
    QUEUE_GAP = 6
    QUEUE_ORDER = 7
    NO_KEY = 8
    WRONG_KEY = 9
    INDEX_CHAIN = 10
    INDEX_SLOT = 11
    INDEX_ORDER = 12
    KINDS_END = 13

class Fault(NamedTuple):
    """`times` faults of one kind; the fields describe the first. See findings.pxd."""

    kind: FaultKind
    owner: int
    number: int
    physical_offset: int
    size: int
    seen: int
    times: int

@final
class Faults:
    def __init__(self, limit: int = ...) -> None:
        """Keeps at most `limit` faults of each kind and counts all."""
    def __len__(self) -> int: ...
    def listed(self) -> list[Fault]: ...
    def total(self, kind: int) -> int: ...
