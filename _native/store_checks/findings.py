"""Findings: what a check found wrong. `firearrow store verify` and `repair`, Spark's audit and `firearrow doctor` print
them.

`Kind` lists what can be wrong with the files of a store; the doctor's findings have the name of their check as kind. In
`Findings` lists are bounded and counts are exact; one thread for each, they are merged afterwards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Generic, Self, TypeVar

Where = TypeVar("Where")
LISTED_MAX = 1000
"""Listed findings of a kind; more are only counted."""


class Severity(IntEnum):
    """A NOTE is not a fault: it may be intended. WARNING: nothing is lost yet. CRITICAL: something does not work, or
    messages are lost."""

    NOTE = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding(Generic[Where]):
    """`text`: what was found, at `where`. `meaning`: why it matters. `repair`: the command that repairs it, or what to
    do."""

    severity: Severity
    where: Where
    text: str
    meaning: str
    repair: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where in a store. `position`: bytes from the file's start. `count`: adjacent faults of a kind, with `bytes` in
    total."""

    store: str
    file: str
    position: int
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    bytes: int = 0


StoreFinding = Finding[Extent]
REBUILD = "repair rebuilds it from the log"
DROP = "repair does nothing without --drop-damaged, which replaces it by a filler record"
NOTE, WARNING, CRITICAL = Severity


class Kind(StrEnum):
    """What can be wrong with a store's files, what it means for messages, and what `firearrow store repair` does.

    WARNING: the log, or the next start, restores it.
    """

    severity: Severity
    meaning: str
    repair: str

    def __new__(cls, name: str, severity: Severity, meaning: str, repair: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.severity, kind.meaning, kind.repair = severity, meaning, repair
        return kind

    MISSING_SEGMENT = "missing segment", CRITICAL, "a file of the log is missing, with its messages", DROP
    CUT_FILE = "cut file", CRITICAL, "a file of the log is shorter than the others", DROP
    TORN = "torn", CRITICAL, "messages at this position cannot be read", DROP
    TORN_TAIL = "torn tail", WARNING, "the last write is incomplete", "repair truncates it"
    HOLE = "hole", CRITICAL, "messages at this position were never written, or are lost", DROP
    BAD_CRC = "bad CRC", CRITICAL, "the body of a message is not what was sent", DROP
    NO_ENTRY = "no queue entry", WARNING, "consumers do not receive the message", REBUILD
    WRONG_ENTRY = "wrong queue entry", WARNING, "consumers receive another message, or none", REBUILD
    WRONG_TAGS = "wrong tags code", WARNING, "tag filters miss the message, or accept it wrongly", REBUILD
    LOST_RECORD = (
        "queue entry without record",
        WARNING,
        "the queue refers to a message that is not in the log",
        REBUILD,
    )
    QUEUE_GAP = "queue gap", WARNING, "the queue has no message at an offset", REBUILD
    QUEUE_ORDER = "queue order", WARNING, "the queue is not in the order of the log", REBUILD
    NO_KEY = "key not in index", WARNING, "a query by key does not find the message", REBUILD
    WRONG_KEY = "wrong index entry", WARNING, "a query by key reads a wrong message", REBUILD
    INDEX_CHAIN = "index chain", WARNING, "queries by key may end too early", REBUILD
    INDEX_SLOT = "index slot", WARNING, "queries by key may end too early", REBUILD
    INDEX_ORDER = "index order", WARNING, "queries by time and key may end too early", REBUILD
    INDEX_FILE = "index file", WARNING, "queries by key cannot use the file", REBUILD
    OFFSET_BEYOND = (
        "offset beyond the end",
        WARNING,
        "the group waits for messages that do not exist",
        "repair --reset-offsets moves it to the end",
    )
    CHECKPOINT = (
        "checkpoint",
        WARNING,
        "recovery after a kill may read too little of the log",
        "repair rewrites it",
    )
    CONFIG = (
        "config file",
        CRITICAL,
        "topics, groups or offsets may be lost",
        "repair restores it from a valid .bak",
    )
    TIMER = (
        "timer file",
        WARNING,
        "timer messages may be late until the next start",
        "the next start, if need be after repair, restores pending messages",
    )
    COMPACTION = (
        "compaction file",
        WARNING,
        "consumers of a compaction topic miss messages, or receive deleted ones",
        "the next start makes entries again, and copies from the log what is missing",
    )
    JOURNAL = "journal", NOTE, "the last progress before a kill may be repeated", "the broker ignores it"
    UNREADABLE = (
        "unreadable file",
        CRITICAL,
        "it cannot be checked",
        "repair removes it if it can be rebuilt from the log, else does nothing",
    )

    def finding(self, where: Extent, text: str) -> StoreFinding:
        return Finding(self.severity, where, text, self.meaning, self.repair, self)


LOG_DAMAGE = frozenset((Kind.MISSING_SEGMENT, Kind.CUT_FILE, Kind.TORN, Kind.HOLE, Kind.BAD_CRC))
QUEUE_DAMAGE = frozenset(
    (Kind.NO_ENTRY, Kind.WRONG_ENTRY, Kind.WRONG_TAGS, Kind.LOST_RECORD, Kind.QUEUE_GAP, Kind.QUEUE_ORDER)
)
INDEX_DAMAGE = frozenset(
    (Kind.NO_KEY, Kind.WRONG_KEY, Kind.INDEX_CHAIN, Kind.INDEX_SLOT, Kind.INDEX_ORDER, Kind.INDEX_FILE)
)


Add = Callable[[Kind, Path, int, str], None]
"""Adds a finding: its kind, file, position there and text."""


@dataclass(slots=True)
class Findings:
    """Of one store."""

    listed: list[StoreFinding] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    """How many of each kind there are; a finding counts as often as its `count`."""
    _positions: set[tuple[str, int]] = field(default_factory=set)
    _kept: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.totals.total() > 0

    def add(self, finding: StoreFinding) -> None:
        self.extend({finding.kind: finding.where.count}, (finding,))

    def add_in(self, store: str, kind: Kind, path: Path, position: int, text: str) -> None:
        """`partial(findings.add_in, store)` is an `Add` for that store."""
        self.add(kind.finding(Extent(store, str(path), position), text))

    def extend(self, totals: Mapping[str, int], listed: Iterable[StoreFinding]) -> None:
        """Add findings, of which there are `totals` of each kind; some of them are listed."""
        self.totals.update({str(kind): number for kind, number in totals.items() if number})
        for finding in listed:
            if self._kept[finding.kind] < LISTED_MAX:
                self._kept[finding.kind] += 1
                self._positions.add((finding.where.file, finding.where.position))
                self.listed.append(finding)

    def merge(self, other: "Findings") -> None:
        self.extend(other.totals, other.listed)

    def retract(self, finding: StoreFinding) -> None:
        """Remove a listed finding that turned out to be none."""
        self.listed.remove(finding)
        self._kept[finding.kind] -= 1
        self._positions.discard((finding.where.file, finding.where.position))
        self.totals[str(finding.kind)] -= finding.where.count
        self.totals = +self.totals

    def is_listed_at(self, where: Extent) -> bool:
        """Whether a listed finding is at this position."""
        return (where.file, where.position) in self._positions

    def ordered(self) -> list[StoreFinding]:
        """The listed findings, sorted by kind and position."""
        order: dict[str, int] = {kind: number for number, kind in enumerate(Kind)}
        return sorted(
            self.listed,
            key=lambda each: (order[each.kind], each.where.store, each.where.file, each.where.position),
        )


def as_row(finding: StoreFinding) -> dict[str, str | int | None]:
    """A finding as JSON and tables have it."""
    where = asdict(finding.where)
    place = {name: where.pop(name) for name in ("store", "file", "position")}
    return {"kind": str(finding.kind), **place, "text": finding.text, **where}
