"""RefusalLog: the last requests that were refused, and how many were by reason. Bounded. Loop thread."""

from collections import Counter
from dataclasses import dataclass

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Peer

ENTRIES_MAX = 256
NAME_CHARS_MAX = 255
OTHER = "OTHER"
NAMES = {int(code): code.name for code in ResponseCode}
TOPIC_FIELDS, GROUP_FIELDS = ("topic", "b"), ("consumerGroup", "producerGroup", "group", "a")


@dataclass(slots=True)
class RefusedRequest:
    """The last of `count` equal refusals of one address: when, the request, and the response's code."""

    at_ms: int
    code: int
    response_code: int
    reason: str
    address: str
    topic: str
    group: str
    count: int

    def to_object(self) -> dict[str, object]:
        return {
            "atMs": self.at_ms,
            "code": self.code,
            "responseCode": self.response_code,
            "reason": self.reason,
            "address": self.address,
            "topic": self.topic,
            "group": self.group,
            "count": self.count,
        }


class RefusalLog:
    """Refusals of the same address and reason are one entry; beyond `entries_max` the oldest is dropped."""

    def __init__(self, clock: Clock, *, entries_max: int = ENTRIES_MAX) -> None:
        self._clock = clock
        self._entries_max = entries_max
        self._entries: dict[tuple[str, str], RefusedRequest] = {}
        self.by_reason: Counter[str] = Counter()
        """Name of the response code → refusals since the start; OTHER is a code without a name."""

    def note(self, request: RemotingCommand, peer: Peer, response_code: int) -> None:
        reason = NAMES.get(response_code, OTHER)
        self.by_reason[reason] += 1
        address = "{}:{}".format(*peer.remote)
        before = self._entries.pop((address, reason), None)
        if before is None and len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[address, reason] = RefusedRequest(
            self._clock.now_ms(),
            request.code,
            response_code,
            reason,
            address,
            _field(request, TOPIC_FIELDS),
            _field(request, GROUP_FIELDS),
            1 if before is None else before.count + 1,
        )

    def last(self, count: int) -> list[RefusedRequest]:
        """The last ones, newest first."""
        return list(reversed(self._entries.values()))[:count]


def _field(request: RemotingCommand, names: tuple[str, ...]) -> str:
    found = next((request.ext[name] for name in names if name in request.ext), "")
    return found[:NAME_CHARS_MAX]
