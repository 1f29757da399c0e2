"""LogTimes: when a log had which end, so that a lag in bytes is known in time and messages as well. Pure.

A point a second, each with a later end than the one before; those of an hour are kept. Between two points time and
messages are in proportion to the bytes.
"""

from collections import deque
from typing import NamedTuple

from firearrow.broker.base.peer import Address

POINTS_MAX = 3_600


class Lag(NamedTuple):
    """`ms`: how long ago the log ended where the copy ends now; no less than this, if that is not remembered."""

    bytes: int
    ms: int
    messages: int


class ReplicaLag(NamedTuple):
    """One copy against its master. `address`: of the other end of the connection; None: there is none. `messages`: None
    if not counted. `host` and `name`: of an expected replica."""

    address: Address | None
    in_sync: bool
    bytes: int
    ms: int
    messages: int | None
    host: str = ""
    name: str = ""


class _Point(NamedTuple):
    """`first`, `last`: when the log was seen to have this end, in s. `messages`: stored until then."""

    end: int
    first: float
    last: float
    messages: int


class LogTimes:
    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points: deque[_Point] = deque(maxlen=points_max)

    def note(self, end: int, now: float, messages: int = 0) -> None:
        """Once a second; `now` in s, of any clock that never goes back."""
        first = now
        while self._points and self._points[-1].end >= end:
            removed = self._points.pop()
            if removed.end == end:
                first = removed.first
        self._points.append(_Point(end, first, now, messages))

    def lag(self, copied: int, end: int, now: float, messages: int = 0) -> Lag:
        """Of a copy that ends at `copied`; `end` and `messages` of the log now."""
        if copied >= end:
            return Lag(0, 0, 0)
        after = _Point(end, now, now, messages)
        for point in reversed(self._points):
            if point.end <= copied:
                share = (copied - point.end) / (after.end - point.end)
                at = point.last + share * (after.first - point.last)
                count = point.messages + share * (after.messages - point.messages)
                return Lag(end - copied, round(1000 * (now - at)), max(round(messages - count), 0))
            if point.end <= after.end:
                after = point
        return Lag(end - copied, round(1000 * (now - after.first)), max(messages - after.messages, 0))
