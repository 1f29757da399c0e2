"""ReceiptHandle: identifies a popped message to the broker (POP_CK); the offset strings of a POP answer.

A handle has eight fields separated by spaces: start offset of the pop, pop time, invisible time (ms), revive
queue, kind of topic, broker name, queue id, queue offset of the message. Pure functions on strings.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import InvalidReceiptHandle
from firearrow.client.base.message import Property
from firearrow.client.base.names import RETRY

TopicKind = Literal["0", "1", "2"]
"""The topic itself, its retry topic `%RETRY%group_topic`, or that of newer brokers `%RETRY%group+topic`."""
NORMAL: TopicKind = "0"
RETRY_V1: TopicKind = "1"
RETRY_V2: TopicKind = "2"
ORDER_REVIVE_QUEUE = 999
"""The revive queue in receipts of orderly pops, for which brokers write no check point."""
FIELDS = 8
TEXT_CHARS_MAX = 32768
DIGITS_MAX = 18

QueueKey = tuple[TopicKind, int]
"""Kind of topic and queue id; the messages of an answer and the offsets in its strings correspond per key."""


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
        """Parse a handle. Fields after the eighth are ignored, as in other clients. InvalidReceiptHandle."""
        fields = text.split(" ")
        if len(text) > TEXT_CHARS_MAX or len(fields) < FIELDS:
            raise InvalidReceiptHandle(
                f"POP_CK must have {FIELDS} fields separated by spaces, not {text[:64]!r}"
            )
        start, pop_ms, invisible_ms, revive_queue = (whole(word, "POP_CK") for word in fields[:4])
        queue_id, queue_offset = whole(fields[6], "POP_CK"), whole(fields[7], "POP_CK")
        return cls(
            start, pop_ms, invisible_ms, revive_queue, kind(fields[4]), fields[5], queue_id, queue_offset
        )

    @property
    def text(self) -> str:
        return " ".join(map(str, self))

    @property
    def in_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def topic(self, topic: str, group: str) -> str:
        """The real topic of the message that `group` popped from `topic`."""
        return real_topic(topic, group, self.kind)

    def expired(self, now_ms: int) -> bool:
        """The invisible time is over: another member may have the message already."""
        return now_ms - self.pop_ms >= self.invisible_ms

    def hidden(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> "ReceiptHandle":
        """The handle after a change of the invisible time: a separate pop that starts at the message."""
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
    """The kind that brokers derive from a topic's name."""
    if not topic.startswith(RETRY):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def kind(word: str) -> TopicKind:
    match word:
        case "0" | "1" | "2":
            return word
    raise InvalidReceiptHandle(f"the kind of topic must be 0, 1 or 2, not {word[:32]!r}")


def start_offsets(text: str) -> dict[QueueKey, int]:
    """`startOffsetInfo`: the start offset of the pop for each queue."""
    return {key: whole(value, "startOffsetInfo") for key, value in _entries(text, "startOffsetInfo").items()}


def message_offsets(text: str) -> dict[QueueKey, list[int]]:
    """`msgOffsetInfo`: the queue offsets of the popped messages of each queue, ascending."""
    entries = _entries(text, "msgOffsetInfo")
    return {
        key: [whole(offset, "msgOffsetInfo") for offset in value.split(",")] for key, value in entries.items()
    }


class OrderCounts(NamedTuple):
    """`orderCountInfo`: how often messages of orderly pops were popped before, by queue or by message."""

    of_queues: Mapping[QueueKey, int]
    of_messages: Mapping[tuple[TopicKind, int, int], int]

    @staticmethod
    def of(text: str) -> "OrderCounts":
        of_queues: dict[QueueKey, int] = {}
        of_messages: dict[tuple[TopicKind, int, int], int] = {}
        for topic_kind, subject, value in _triples(text, "orderCountInfo"):
            count = whole(value, "orderCountInfo")
            if subject.startswith("qo"):
                queue_id, _, queue_offset = subject[2:].partition("%")
                key = topic_kind, whole(queue_id, "orderCountInfo"), whole(queue_offset, "orderCountInfo")
                of_messages[key] = count
            else:
                of_queues[topic_kind, whole(subject, "orderCountInfo")] = count
        return OrderCounts(of_queues, of_messages)

    def times(self, queue: QueueKey, queue_offset: int) -> int:
        """0 if the answer has no count."""
        count = self.of_messages.get((*queue, queue_offset))
        return self.of_queues.get(queue, 0) if count is None else count


def whole(text: str, field: str) -> int:
    """Parse a number that is not negative. InvalidReceiptHandle."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidReceiptHandle(f"{field} must be a number, not {text[:32]!r}")
    return int(text)


def _entries(text: str, field: str) -> dict[QueueKey, str]:
    entries: dict[QueueKey, str] = {}
    for topic_kind, queue_id, value in _triples(text, field):
        key = topic_kind, whole(queue_id, field)
        if key in entries:
            raise InvalidReceiptHandle(f"{field}: queue {queue_id} occurs twice")
        entries[key] = value
    return entries


def _triples(text: str, field: str) -> list[tuple[TopicKind, str, str]]:
    """Entries `kind subject value`, separated by `;`; the subject is a queue or `qo<queue>%<offset>`."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidReceiptHandle(
            f"{field} has {len(text)} characters, at most {TEXT_CHARS_MAX} are allowed"
        )
    triples = []
    for entry in text.split(";") if text else ():
        fields = entry.split(" ")
        if len(fields) != 3:
            raise InvalidReceiptHandle(f"{field}: an entry must have three fields, not {entry[:64]!r}")
        triples.append((kind(fields[0]), fields[1], fields[2]))
    return triples


def receipt_handle_of(message: ReceivedMessage) -> ReceiptHandle:
    """InvalidReceiptHandle: the message was not popped."""
    text = message.get_property(Property.POP_CHECK_POINT)
    if text is None:
        raise InvalidReceiptHandle(f"{message.message_id} was not popped: it has no receipt handle")
    return ReceiptHandle.of(text)
