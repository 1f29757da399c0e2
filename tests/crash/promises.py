"""Promises: what a broker has acknowledged of pending work, computed from the marks of tests.crash.pending."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Sent:
    """An acknowledged message: its topic, its offset in the log and, for queue 0, its queue offset."""

    topic: str
    at: int
    entry: int


@dataclass(slots=True)
class Promises:
    """By body. `later` are delivered to their topic later, except those of `recalling`; `halves` when they are
    committed; `sent` are popped by a group until they are acknowledged. What was begun (`recalling`, `deciding`,
    `acking`) may have happened; what was answered (`decided`, `acked`) has happened."""

    later: dict[bytes, Sent] = field(default_factory=dict)
    halves: dict[bytes, Sent] = field(default_factory=dict)
    sent: dict[bytes, Sent] = field(default_factory=dict)
    recalling: set[bytes] = field(default_factory=set)
    deciding: dict[bytes, bool] = field(default_factory=dict)
    decided: dict[bytes, bool] = field(default_factory=dict)
    acking: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.later or self.halves or self.sent)

    def apply(self, mark: dict[str, Any]) -> None:
        body = str(mark.get("body")).encode()
        match mark["what"]:
            case "later":
                self.later[body] = _sent(mark)
            case "half":
                self.halves[body] = _sent(mark)
            case "sent":
                self.sent[body] = _sent(mark)
            case "recalling":
                self.recalling.add(body)
            case "deciding":
                self.deciding[body] = mark["commit"]
            case "decided":
                self.decided[body] = mark["commit"]
            case "acking":
                self.acking.add(body)
            case "acked":
                self.acked.add(body)
            case _:
                pass


def _sent(mark: dict[str, Any]) -> Sent:
    return Sent(mark["topic"], mark["at"], mark["entry"])
