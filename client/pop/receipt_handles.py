"""Receipt: what names a popped message to the broker (property POP_CK), and the offset texts of a POP answer.

Eight words with a space between: offset at which the pop began, pop time, invisible time (ms), revive queue, kind of
topic, broker name, queue id, queue offset of the message. Pure functions on text; knows no connection.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import Property
from firearrow.client.base.names import RETRY

TopicKind = Literal["0", "1", "2"]
"""The topic itself, its retry topic `%RETRY%group_topic`, or that of newer brokers `%RETRY%group+topic`."""
NORMAL: TopicKind = "0"
RETRY_V1: TopicKind = "1"
RETRY_V2: TopicKind = "2"
ORDER_REVIVE_QUEUE = 999
"""Stands in a receipt of a pop in order, for which brokers write no check point."""
WORDS = 8
TEXT_CHARS_MAX = 32768
DIGITS_MAX = 18

Group = tuple[TopicKind, int]
"""Kind of topic and queue id: within one, the messages of an answer and the offsets in its texts go together."""


class InvalidReceiptHandle(ClientError, ValueError):
    """A receipt, or a text of a POP answer, cannot be read; the text names the field."""


class ReceiptHandle(NamedTuple):
    """Times in ms by the broker's clock."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: TopicKind
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, text: str) -> Self:
        """InvalidReceiptHandle. Words behind the eighth are passed over, as other clients do."""
        words = text.split(" ")
        if len(text) > TEXT_CHARS_MAX or len(words) < WORDS:
            raise InvalidReceiptHandle(f"POP_CK: {WORDS} words are wanted, not {text[:64]!r}")
        start, pop_ms, invisible_ms, revive_queue = (whole(word, "POP_CK") for word in words[:4])
        queue_id, queue_offset = whole(words[6], "POP_CK"), whole(words[7], "POP_CK")
        return cls(
            start, pop_ms, invisible_ms, revive_queue, kind(words[4]), words[5], queue_id, queue_offset
        )

    @property
    def text(self) -> str:
        return " ".join(map(str, self))

    @property
    def in_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def topic(self, topic: str, group: str) -> str:
        """The real topic: where the message lies that `group` popped from `topic`."""
        return real_topic(topic, group, self.kind)

    def expired(self, now_ms: int) -> bool:
        """The message was due to become visible again: somebody else may have it already."""
        return now_ms - self.pop_ms >= self.invisible_ms

    def hidden(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> "ReceiptHandle":
        """What names the message after its invisible time was changed: a pop of its own, which begins at itself."""
        return self._replace(
            start_offset=self.queue_offset,
            pop_ms=pop_ms,
            invisible_ms=invisible_ms,
            revive_queue=revive_queue,
        )


def real_topic(topic: str, group: str, kind: TopicKind) -> str:
    if kind == NORMAL:
        return topic
    return f"{RETRY}{group}{'_' if kind == RETRY_V1 else '+'}{topic}"


def kind_of(topic: str) -> TopicKind:
    """As brokers write it for a topic's name."""
    if not topic.startswith(RETRY):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def kind(word: str) -> TopicKind:
    match word:
        case "0" | "1" | "2":
            return word
    raise InvalidReceiptHandle(f"kind of topic: 0, 1 or 2 are wanted, not {word[:32]!r}")


def start_offsets(text: str) -> dict[Group, int]:
    """`startOffsetInfo`: where the pop of each queue began."""
    return {
        group: whole(value, "startOffsetInfo") for group, value in _entries(text, "startOffsetInfo").items()
    }


def message_offsets(text: str) -> dict[Group, list[int]]:
    """`msgOffsetInfo`: the queue offsets of what was popped of each queue, ascending."""
    entries = _entries(text, "msgOffsetInfo")
    return {
        group: [whole(offset, "msgOffsetInfo") for offset in value.split(",")]
        for group, value in entries.items()
    }


class OrderCounts(NamedTuple):
    """`orderCountInfo`: how often messages were popped before, in order. By queue, and by message if brokers say so."""

    of_queues: Mapping[Group, int]
    of_messages: Mapping[tuple[TopicKind, int, int], int]

    @staticmethod
    def of(text: str) -> "OrderCounts":
        of_queues: dict[Group, int] = {}
        of_messages: dict[tuple[TopicKind, int, int], int] = {}
        for mark, place, value in _triples(text, "orderCountInfo"):
            count = whole(value, "orderCountInfo")
            if place.startswith("qo"):
                queue_id, _, queue_offset = place[2:].partition("%")
                key = mark, whole(queue_id, "orderCountInfo"), whole(queue_offset, "orderCountInfo")
                of_messages[key] = count
            else:
                of_queues[mark, whole(place, "orderCountInfo")] = count
        return OrderCounts(of_queues, of_messages)

    def times(self, group: Group, queue_offset: int) -> int:
        """0: none is told."""
        found = self.of_messages.get((*group, queue_offset))
        return self.of_queues.get(group, 0) if found is None else found


def whole(text: str, field: str) -> int:
    """A number from 0. InvalidReceiptHandle."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidReceiptHandle(f"{field}: a number is wanted, not {text[:32]!r}")
    return int(text)


def _entries(text: str, field: str) -> dict[Group, str]:
    entries: dict[Group, str] = {}
    for mark, queue_id, value in _triples(text, field):
        group = mark, whole(queue_id, field)
        if group in entries:
            raise InvalidReceiptHandle(f"{field}: queue {queue_id} is told twice")
        entries[group] = value
    return entries


def _triples(text: str, field: str) -> list[tuple[TopicKind, str, str]]:
    """`kind place value`, joined by `;`. An empty text has none."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidReceiptHandle(f"{field}: {len(text)} characters, at most {TEXT_CHARS_MAX}")
    triples = []
    for entry in text.split(";") if text else ():
        words = entry.split(" ")
        if len(words) != 3:
            raise InvalidReceiptHandle(f"{field}: three words are wanted, not {entry[:64]!r}")
        triples.append((kind(words[0]), words[1], words[2]))
    return triples


def receipt_handle_of(message: ReceivedMessage) -> ReceiptHandle:
    """InvalidReceiptHandle: the message was not popped."""
    text = message.get_property(Property.POP_CHECK_POINT)
    if text is None:
        raise InvalidReceiptHandle(f"{message.message_id} was not popped: it has no receipt")
    return ReceiptHandle.of(text)
