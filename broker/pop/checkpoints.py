"""Check points (what one pop took of one queue) and acknowledgements, as messages of the revive topic.

The bodies are Apache's JSON (PopCheckPoint, AckMsg, BatchAckMsg). Both are timer messages: a check point
reaches the revive topic one second before its messages become visible again, an acknowledgement when they do.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from firearrow._native.protocol.fastjson import dumps, loads
from firearrow.broker.base.message import Message, Property, properties_text
from firearrow.broker.pop.receipt_handles import DIGITS_MAX, ReceiptHandle, parse_number
from firearrow.broker.tables import json_fields

CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
REVIVE_AHEAD_MS = 1000
"""A check point is due this long before its messages are visible again."""
MESSAGES_MAX = 128
OFFSET_MAX = (1 << 63) - 1
INVISIBLE_MS_MAX = 1 << 42

FIRST_MEMBER = b'{"ao":'
"""How the body of an acknowledgement begins."""
KNOWN_MAX = 64
"""Check points of which an AckDecoder remembers the acknowledgements."""

Key = tuple[str, str, int, int, int, str]
"""Joins an acknowledgement with its check point: topic, group, queue, start offset, pop time, broker."""


def revive_topic(cluster: str) -> str:
    return f"rmq_sys_REVIVE_LOG_{cluster}"


@dataclass(slots=True)
class PopCheckPoint:
    """`offsets` were popped; `acked` has one bit for each.

    `revive_offset`: the check point's own queue offset.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    broker: str
    suspend: bool = False
    acked: int = 0
    revive_offset: int = 0

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker

    @property
    def revive_ms(self) -> int:
        return self.pop_ms + self.invisible_ms

    @property
    def is_done(self) -> bool:
        return self.acked == (1 << len(self.offsets)) - 1

    def ack(self, offset: int) -> None:
        if offset in self.offsets:
            self.acked |= 1 << self.offsets.index(offset)

    def message(self, revive: str, revive_queue: int, now_ms: int) -> Message:
        body = {
            "bm": 0,
            "bn": self.broker,
            "c": self.group,
            "d": [offset - self.start_offset for offset in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "pt": self.pop_ms,
            "q": self.queue_id,
            "reviveTime": self.revive_ms,
            "ro": 0,
            "so": self.start_offset,
            "sp": self.suspend,
            "t": self.topic,
        }
        name = f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_ms}@{self.broker}@ck"
        return _message(
            revive, revive_queue, body, CHECK_POINT, name, self.revive_ms - REVIVE_AHEAD_MS, now_ms
        )

    @staticmethod
    def of(body: bytes) -> "PopCheckPoint":
        """Decode a check point's body. Raises ValueError."""
        fields = json_fields.members(loads(body), "check point")
        start, count = _offset(fields, "so"), json_fields.number(fields, "n", 0, high=MESSAGES_MAX)
        deltas = json_fields.items(fields.get("d"), "d")[:MESSAGES_MAX]
        offsets = [start + json_fields.whole(delta, "d") for delta in deltas] or list(
            range(start, start + count)
        )
        return PopCheckPoint(
            topic=json_fields.text(fields, "t"),
            group=json_fields.text(fields, "c"),
            queue_id=json_fields.number(fields, "q", 0),
            start_offset=start,
            pop_ms=_offset(fields, "pt"),
            invisible_ms=json_fields.number(fields, "it", 0, high=INVISIBLE_MS_MAX),
            offsets=offsets,
            broker=json_fields.text(fields, "bn", ""),
            suspend=json_fields.boolean(fields, "sp", False),
        )


class AckMessage(NamedTuple):
    """Acknowledged `offsets` of one check point. `single`: written as AckMsg, not as BatchAckMsg."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker: str
    offsets: tuple[int, ...]
    single: bool = True

    @staticmethod
    def of_one(group: str, topic: str, queue_id: int, offset: int, handle: ReceiptHandle) -> "AckMessage":
        """Of the message that a client got this receipt handle for."""
        return AckMessage(
            topic, group, queue_id, handle.start_offset, handle.pop_ms, handle.broker, (offset,)
        )

    @property
    def key(self) -> Key:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker

    def message(self, revive: str, revive_queue: int, visible_ms: int, now_ms: int) -> Message:
        body: dict[str, Any] = {"ao": self.offsets[0] if self.single else -1}
        if not self.single:
            body["aol"] = list(self.offsets)
        body |= {
            "bn": self.broker,
            "c": self.group,
            "pt": self.pop_ms,
            "q": self.queue_id,
            "so": self.start_offset,
            "t": self.topic,
        }
        name = f"{self.topic}@{self.queue_id}@{body['ao']}@{self.group}@{self.pop_ms}@{self.broker}@ack"
        return _message(
            revive, revive_queue, body, ACK if self.single else BATCH_ACK, name, visible_ms, now_ms
        )

    def around_offset(self, message: Message) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
        """Body and properties of this acknowledgement's message, each before and after the offset: the others of the
        check point differ in it alone. Of a single one."""
        body, key = (
            FIRST_MEMBER,
            f"{Property.UNIQUE_KEY}\x01{self.topic}@{self.queue_id}@".encode("utf-8", "replace"),
        )
        return self._split(message.body, body), self._split(properties_text(message.properties), key)

    def _split(self, text: bytes, start: bytes) -> tuple[bytes, bytes]:
        before, _, rest = text.partition(start)
        return before + start, rest.removeprefix(b"%d" % self.offsets[0])

    @staticmethod
    def of(body: bytes, broker: str) -> "AckMessage":
        """Decode an acknowledgement's body; `broker` is used if the body names none. Raises ValueError."""
        fields = json_fields.members(loads(body), "acknowledgement")
        batch = json_fields.items(fields.get("aol"), "aol")[:MESSAGES_MAX]
        offsets = [json_fields.whole(offset, "aol") for offset in batch] or [
            json_fields.whole(fields.get("ao"), "ao")
        ]
        return AckMessage(
            topic=json_fields.text(fields, "t"),
            group=json_fields.text(fields, "c"),
            queue_id=json_fields.number(fields, "q", 0),
            start_offset=_offset(fields, "so"),
            pop_ms=_offset(fields, "pt"),
            broker=json_fields.text(fields, "bn", "") or broker,
            offsets=tuple(offsets),
            single=not batch,
        )


class AckDecoder:
    """Decodes acknowledgements. Those of one check point follow each other, and differ in their offset alone: it keeps
    the last ones."""

    def __init__(self) -> None:
        self._known: dict[bytes, AckMessage] = {}
        """By the body without its first member, the offset."""

    def decode(self, body: bytes, broker: str) -> AckMessage:
        """As `AckMessage.of`. Raises ValueError."""
        first, _, rest = body.partition(b",")
        digits = first.removeprefix(FIRST_MEMBER)
        known = self._known.get(rest)
        if known is not None and digits.isdigit() and len(digits) <= DIGITS_MAX:
            return AckMessage(*known[:6], (int(digits),))
        acks = AckMessage.of(body, broker)
        if acks.single and digits == b"%d" % acks.offsets[0] and b'"ao' not in rest:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[rest] = acks
        return acks


def _offset(fields: json_fields.Members, name: str) -> int:
    return json_fields.number(fields, name, 0, high=OFFSET_MAX)


def _message(
    revive: str, queue: int, body: dict[str, Any], tag: str, name: str, deliver_ms: int, now_ms: int
) -> Message:
    properties = {
        Property.TIMER_DELIVER_MS: str(deliver_ms),
        Property.UNIQUE_KEY: name,
        Property.TAGS: tag,
    }
    return Message(revive, queue, dumps(body), properties, born_ms=now_ms)


def deliver_ms(properties: dict[str, str]) -> int:
    """When a message of the revive topic was due, in ms; 0 if it has no such property."""
    text = properties.get(Property.TIMER_DELIVER_MS, "")
    return parse_number(text, Property.TIMER_DELIVER_MS) if text.isdecimal() else 0
