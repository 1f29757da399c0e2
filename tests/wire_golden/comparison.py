"""Compares what Apache sent with what we sent, value by value. A difference has a path. Which ones are allowed is
decided elsewhere.

JSON is compared as values, lists of Java's sets without their order, message bodies record by record. The language
of the header is not compared here: it differs in every frame.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.store.log.record import Record, RecordError, decode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import properties
from firearrow.broker.base.message import properties_of
from tests.wire_golden.player import Exchange
from tests.wire_golden.pops import in_order
from tests.wire_golden.translation import Translation

RECORDS = ("PULL_MESSAGE", "LITE_PULL_MESSAGE", "QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID", "POP_MESSAGE")
SHOWN = ("CONSUME_MESSAGE_DIRECTLY", "CHECK_TRANSACTION_STATE")
PROPERTIES = ("GET_BROKER_CONFIG", "GET_NAMESRV_CONFIG")
ABSENT = None
Key = str | int | MessageQueue


@dataclass(frozen=True)
class Difference:
    """`path` leads from the frame to the value; ABSENT where one side has none."""

    exchange: Exchange
    path: tuple[Key, ...]
    theirs: Any
    ours: Any

    @property
    def request(self) -> RemotingCommand | None:
        return None if self.exchange.request is None else self.exchange.request.command

    @property
    def asked(self) -> int:
        """The code of the request, of either side."""
        return self.exchange.theirs.command.code if self.request is None else self.request.code

    @property
    def topic(self) -> str:
        ext = {} if self.request is None else self.request.ext
        return ext.get("topic", ext.get("b", ""))

    @property
    def leaf(self) -> Key:
        return self.path[-1]

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        return f"{self.exchange.theirs} {self.topic}: {path}: {str(self.theirs)[:300]!r} / {str(self.ours)[:300]!r}"


class Comparison:
    def __init__(self, translation: Translation) -> None:
        self._translation = translation

    def __call__(self, exchange: Exchange) -> list[Difference]:
        theirs, ours = exchange.theirs.command, exchange.ours
        if ours is None:
            return [Difference(exchange, ("silence",), theirs.code, None)]
        found = [
            Difference(exchange, (name,), getattr(theirs, name), getattr(ours, name))
            for name in ("version", "serializer")
            if getattr(theirs, name) != getattr(ours, name)
        ]
        if theirs.code != ours.code:
            return [
                *found,
                Difference(exchange, ("code",), (theirs.code, theirs.remark), (ours.code, ours.remark)),
            ]
        if (theirs.remark or "") != (ours.remark or ""):
            found.append(Difference(exchange, ("remark",), theirs.remark, ours.remark))
        found += [Difference(exchange, *one) for one in _values(_ext(theirs), _ext(ours), ("ext",))]
        found += [Difference(exchange, *one) for one in self._bodies(exchange, theirs.body, ours.body)]
        return found

    def _bodies(self, exchange: Exchange, theirs: bytes, ours: bytes) -> Iterator["Found"]:
        name = exchange.theirs.line.get("answers")
        if not theirs or not ours:
            if theirs != ours:
                yield ("body",), theirs or ABSENT, ours or ABSENT
        elif name in RECORDS or exchange.theirs.line["name"] in SHOWN:
            yield from self._records(exchange, theirs, ours)
        elif name in PROPERTIES:
            yield from _values(properties.parse(theirs.decode()), properties.parse(ours.decode()), ("body",))
        elif theirs[:1] in b"{[":
            yield from _values(fastjson.loads(theirs), fastjson.loads(ours), ("body",))
        elif theirs != ours:
            yield ("body",), theirs, ours

    def _records(self, exchange: Exchange, theirs: bytes, ours: bytes) -> Iterator["Found"]:
        """In their order."""
        whole = exchange.theirs.whole
        cut_at = exchange.theirs.line.get("cutAt") or 0
        body_end = (
            len(theirs) if whole else cut_at - (exchange.theirs.line["bodyLength"] and _header(exchange))
        )
        expected, got = records(theirs, body_end), records(ours, len(ours))
        if exchange.theirs.line.get("answers") == "POP_MESSAGE":  # the walk over the queues begins at random
            expected, got = (sorted(found, key=lambda one: one.queue_id) for found in (expected, got))
        if whole and len(expected) != len(got):
            yield ("body", "records"), len(expected), len(got)
        self._translation.learn_positions(
            (a.physical_offset, b.physical_offset) for a, b in zip(expected, got, strict=False)
        )
        for n, (a, b) in enumerate(zip(expected, got, strict=False)):
            yield from _values(_fields(a), _fields(b), ("body", "record", n))


Found = tuple[tuple[Key, ...], Any, Any]


def _header(exchange: Exchange) -> int:
    """Number of bytes before the body of a recorded frame."""
    line = exchange.theirs.line
    return 8 + (int.from_bytes(base64.b64decode(line["raw64"])[4:8]) & 0xFFFFFF)


def records(body: bytes, end: int) -> list[Record]:
    """The whole records below `end`."""
    found: list[Record] = []
    at = 0
    while at + 4 <= end and at + int.from_bytes(body[at : at + 4]) <= end:
        try:
            record = decode(body[at:end])
        except RecordError as error:
            raise AssertionError(f"record {len(found)} at {at}: {error}") from None
        found.append(record)
        at += record.size
    return found


def _ext(command: RemotingCommand) -> dict[str, Any]:
    """The fields, with a message's properties as a map."""
    if "properties" not in command.ext:
        return in_order(command.ext)
    return command.ext | {"properties": properties_of(command.ext["properties"])}


def _fields(record: Record) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in Record.__slots__ if name != "properties_bytes"}
    return fields | {"properties": record.properties}


def _values(theirs: Any, ours: Any, path: tuple[Key, ...]) -> Iterator[Found]:  # noqa: ANN401
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys(), key=str):
            if key not in theirs or key not in ours:
                yield (*path, key), theirs.get(key, ABSENT), ours.get(key, ABSENT)
            else:
                yield from _values(theirs[key], ours[key], (*path, key))
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from _lists(theirs, ours, path)
    elif isinstance(theirs, str) and isinstance(ours, str) and theirs[:1] == ours[:1] == "{":
        yield from _values(fastjson.loads(theirs), fastjson.loads(ours), path)
    elif theirs != ours:
        yield path, theirs, ours


def _lists(theirs: list[Any], ours: list[Any], path: tuple[Key, ...]) -> Iterator[Found]:
    """As multisets of scalars, or of objects paired by what identifies them."""
    if all(isinstance(one, dict) for one in theirs + ours):
        a, b = ({_name(one): one for one in side} for side in (theirs, ours))
        if len(a) == len(theirs) and len(b) == len(ours):
            yield from _values(a, b, path)
            return
    left, right = Counter(map(str, theirs)), Counter(map(str, ours))
    if left != right:
        yield path, sorted((left - right).elements()), sorted((right - left).elements())


def _name(one: dict[Key, Any]) -> str:
    if "offsetTable" in one:
        return " ".join(sorted({queue.topic for queue in one["offsetTable"]}))
    for key in ("clientId", "brokerName", "topic"):
        if key in one:
            return str(one[key])
    return str(next(iter(sorted(map(str, one))), ""))
