"""Findings: what an audit holds against a store, each with the file and the place. Bounded lists, exact counts.

Knows no store; one thread each, merged afterwards.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum

LISTED_MAX = 1000
"""Findings of a kind that are listed; the others are counted."""


class Kind(StrEnum):
    MISSING_SEGMENT = "missing segment"
    CUT_FILE = "cut file"
    TORN = "torn"
    """Bytes inside the log that are no record."""
    TORN_TAIL = "torn tail"
    HOLE = "hole"
    """Nothing was written inside the log."""
    BAD_CRC = "bad CRC"
    NO_ENTRY = "no queue entry"
    WRONG_ENTRY = "wrong queue entry"
    WRONG_TAGS = "wrong tags code"
    LOST_RECORD = "queue entry without record"
    QUEUE_GAP = "queue gap"
    QUEUE_ORDER = "queue order"
    NO_KEY = "key not in index"
    WRONG_KEY = "wrong index entry"
    INDEX_CHAIN = "index chain"
    INDEX_SLOT = "index slot"
    INDEX_ORDER = "index order"
    INDEX_FILE = "index file"
    OFFSET_BEYOND = "offset beyond the end"
    CHECKPOINT = "checkpoint"
    CONFIG = "config file"
    TIMER = "timer file"
    JOURNAL = "journal"
    UNREADABLE = "unreadable file"


@dataclass(frozen=True, slots=True)
class Finding:
    """`position`: bytes from the file's start. `count` things are wrong in the same way, `bytes` in all."""

    kind: Kind
    store: str
    file: str
    position: int
    text: str
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    bytes: int = 0

    def as_row(self) -> dict[str, str | int | None]:
        return {**asdict(self), "kind": str(self.kind)}


@dataclass(slots=True)
class Findings:
    listed: list[Finding] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    """How many of each kind there are; a finding counts as often as its `count`."""
    _places: set[tuple[str, int]] = field(default_factory=set)
    _kept: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.totals.total() > 0

    def add(self, finding: Finding) -> None:
        self.count(finding.kind, finding.count)
        self.name(finding)

    def count(self, kind: Kind, number: int) -> None:
        """So many of a kind, listed or not."""
        if number:
            self.totals[str(kind)] += number

    def name(self, finding: Finding) -> None:
        """Name one that is counted already."""
        if self._kept[finding.kind] < LISTED_MAX:
            self._kept[finding.kind] += 1
            self._places.add((finding.file, finding.position))
            self.listed.append(finding)

    def retract(self, finding: Finding) -> None:
        """It was none."""
        self.listed.remove(finding)
        self._kept[finding.kind] -= 1
        self._places.discard((finding.file, finding.position))
        self.totals[str(finding.kind)] -= finding.count
        self.totals = +self.totals

    def names(self, file: str, position: int) -> bool:
        """Whether one that is listed is there."""
        return (file, position) in self._places

    def merge(self, other: "Findings") -> None:
        self.totals.update(other.totals)
        for finding in other.listed:
            self.name(finding)

    def ordered(self) -> list[Finding]:
        """Those that are listed, by kind and place."""
        order = {kind: number for number, kind in enumerate(Kind)}
        return sorted(self.listed, key=lambda each: (order[each.kind], each.store, each.file, each.position))
