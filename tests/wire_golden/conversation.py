"""The recorded conversations as one list of events, in order of time; each knows its response and its request.

The signed sessions went to another broker and are left out. Only reads.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from firearrow._native.wire.command import RemotingCommand
from tests.golden import Recorded, session, sessions

Connection = tuple[str, int]
"""Session, and the number of the connection in it."""

HEADER_LENGTH_MASK = (1 << 24) - 1


@dataclass(eq=False)
class Event:
    """One frame. `partner`: the response to a request, the request of a response, or None if none was recorded."""

    line: dict[str, Any]
    command: RemotingCommand
    where: Connection
    last: bool = False
    partner: "Event | None" = None

    @property
    def to_server(self) -> bool:
        return bool(self.line["dir"] == "c2s")

    @property
    def is_answer(self) -> bool:
        return bool(self.line["kind"] == "response")

    @property
    def seconds(self) -> float:
        return float(self.line["ts"]) / 1000

    @property
    def whole(self) -> bool:
        """False where the recording cut the body."""
        return not self.line.get("cutAt")

    def __str__(self) -> str:
        return f"{self.where[0]}#{self.where[1]} {self.line['dir']} {self.line.get('answers') or self.line['name']}"


def events() -> list[Event]:
    found = [
        Event(recorded.line, _command(recorded), (name, recorded.line["conn"]))
        for name in sessions()
        if not name.startswith("acl")
        for recorded in session(name)
    ]
    found.sort(key=lambda event: event.line["ts"])
    asked: dict[tuple[Connection, bool, int], Event] = {}
    final: dict[Connection, Event] = {}
    for event in found:
        final[event.where] = event
        opaque = event.command.opaque
        if not event.is_answer:
            asked[event.where, event.to_server, opaque] = event
        elif request := asked.pop((event.where, not event.to_server, opaque), None):
            event.partner, request.partner = request, event
    for event in final.values():
        event.last = True
    return found


def _command(recorded: Recorded) -> RemotingCommand:
    """A truncated body is filled with zeros to its length."""
    raw = recorded.raw
    if raw is not None:
        return RemotingCommand.decode(raw)
    cut = dataclasses.replace(recorded, line=recorded.line | {"cutAt": None}).raw
    assert cut is not None
    header = 8 + (int.from_bytes(cut[4:8]) & HEADER_LENGTH_MASK)
    whole = cut[:header] + cut[header:].ljust(recorded.line["bodyLength"], b"\0")
    return RemotingCommand.decode(len(whole[4:]).to_bytes(4) + whole[4:])
