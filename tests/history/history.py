"""History: the events of all clients, as tables for the rules. Checks nothing; knows no broker and no file.

Events of one client come in the order in which it wrote them; those of different clients are compared by their times.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.history.events import Event

Queue = tuple[str, int]
"""Topic, queue id."""
Position = tuple[str, int, int]
"""Topic, queue id, queue offset."""
GroupQueue = tuple[str, str, int]
"""Group, topic, queue id."""
STORED = "SEND_OK"


@dataclass(slots=True)
class Attempt:
    """One send. `begun`, `ended`: numbers of events of its client. `copies`: how often the client may send it."""

    name: str
    topic: str
    crc: int
    size: int
    copies: int
    kind: str
    fate: str
    begun: int
    ended: int | None = None
    status: str = ""
    position: Position | None = None

    @property
    def sender(self) -> str:
        return self.name.split(".", 1)[0]

    @property
    def acknowledged(self) -> bool:
        return self.status == STORED


class Copy(NamedTuple):
    """A stored message: the id in the body, and the body's CRC."""

    name: str
    crc: int
    size: int


class Delivery(NamedTuple):
    group: str
    position: Position
    copy: Copy
    times: int
    ok: bool
    at: int
    popped: int


class Member(NamedTuple):
    group: str
    topic: str
    how: str
    shared: bool


class Observed(NamedTuple):
    """A group's offset, -1 if there was none; requested at `before`, answered at `at`."""

    offset: int
    before: int
    at: int


class Commit(NamedTuple):
    """When it was requested, or acknowledged."""

    offset: int
    at: int


class Ends(NamedTuple):
    first: int
    end: int


@dataclass(slots=True)
class History:
    """All tables. `duplicate_ids`: sends with the same id. `overwritten`: offsets that changed between two reads."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    duplicate_ids: list[str] = field(default_factory=list)
    stored: dict[Position, Copy] = field(default_factory=dict)
    overwritten: list[tuple[Position, Copy, Copy]] = field(default_factory=list)
    ends: dict[Queue, Ends] = field(default_factory=dict)
    shrunk: list[tuple[Queue, Ends, Ends]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    groups: dict[str, Member] = field(default_factory=dict)
    observed: defaultdict[GroupQueue, list[Observed]] = field(default_factory=lambda: defaultdict(list))
    asked: defaultdict[GroupQueue, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    answered: defaultdict[GroupQueue, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    acked: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    _lines: Counter[str] = field(default_factory=Counter)

    def add(self, source: str, event: Event) -> None:
        """`source` names the client. KeyError: an event lacks a member; ValueError: its kind is unknown."""
        self._lines[source] += 1
        kind = event["event"]
        self.counts[kind] += 1
        if kind == "send":
            self._send(event, self._lines[source])
        elif kind in ("sent", "failed"):
            self._ended(event, self._lines[source])
        elif kind == "got":
            self._got(event)
        elif kind == "joined":
            group = event["group"]
            self.groups[group] = Member(group, event["topic"], event["how"], event.get("shared", False))
        elif kind == "acked":
            self.acked[event["group"], event["id"]].append(event["at"])
        elif kind in ("commit", "committed", "offset"):
            self._offset(kind, event)
        elif kind == "stored":
            self._stored(event)
        elif kind == "ends":
            self._ends((event["topic"], event["queue"]), Ends(event["min"], event["max"]))
        elif kind not in ("started", "killed", "stopped", "done"):
            raise ValueError(f"no event {kind!r}: see events.py")

    def _send(self, event: Event, line: int) -> None:
        name = event["id"]
        if name in self.attempts:
            self.duplicate_ids.append(name)
        self.attempts[name] = Attempt(
            name,
            event["topic"],
            event["crc"],
            event["size"],
            event.get("copies", 1),
            event.get("kind", "plain"),
            event.get("fate", "keep"),
            line,
        )

    def _ended(self, event: Event, line: int) -> None:
        attempt = self.attempts[event["id"]]
        attempt.ended = line
        if event["event"] == "sent":
            attempt.status = event["status"]
            if attempt.kind == "plain":
                attempt.position = attempt.topic, event["queue"], event["offset"]

    def _got(self, event: Event) -> None:
        position = event["topic"], event["queue"], event["offset"]
        copy = Copy(event["id"], event["crc"], event["size"])
        self.deliveries.append(
            Delivery(
                event["group"],
                position,
                copy,
                event["times"],
                event["ok"],
                event["at"],
                event.get("popped", 0),
            )
        )

    def _offset(self, kind: str, event: Event) -> None:
        queue = event["group"], event["topic"], event["queue"]
        if kind == "offset":
            self.observed[queue].append(Observed(event["offset"], event["before"], event["at"]))
        else:
            table = self.asked if kind == "commit" else self.answered
            table[queue].append(Commit(event["offset"], event["at"]))

    def _stored(self, event: Event) -> None:
        position = event["topic"], event["queue"], event["offset"]
        copy = Copy(event["id"], event["crc"], event["size"])
        before = self.stored.setdefault(position, copy)
        if before != copy:
            self.overwritten.append((position, before, copy))
            self.stored[position] = copy

    def _ends(self, queue: Queue, ends: Ends) -> None:
        before = self.ends.get(queue, Ends(0, 0))
        if ends.end < before.end or ends.first < before.first:
            self.shrunk.append((queue, before, ends))
        self.ends[queue] = ends
