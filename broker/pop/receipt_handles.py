"""The receipt handle of a popped message, by which a client acknowledges it, and POP's topic names.

Apache: property POP_CK, ExtraInfoUtil, KeyBuilder.
"""

from typing import NamedTuple

from firearrow._native.protocol import name_rules

ORDER_REVIVE_QUEUE = 999
"""The revive queue in the receipt handle of a message that was popped in order: it has no check point."""
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
RECEIPT_HANDLE_CHARS_MAX = 1024
DIGITS_MAX = 18
HANDLE_WORDS = 6


class InvalidReceiptHandle(ValueError):
    """A receipt handle that cannot be read; the text states what is wrong."""


class ReceiptHandle(NamedTuple):
    """`start_offset`: where the pop began to read. Times in ms. `kind`: NORMAL, RETRY_V1 or RETRY_V2."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker: str

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    @staticmethod
    def of(text: str) -> "ReceiptHandle":
        """Parse a receipt handle. Raises InvalidReceiptHandle."""
        words = text.split(" ") if len(text) <= RECEIPT_HANDLE_CHARS_MAX else []
        if len(words) < HANDLE_WORDS:
            raise InvalidReceiptHandle(
                f"extraInfo must have at least {HANDLE_WORDS} words, not {text[:64]!r}"
            )
        start, pop_ms, invisible_ms, revive_queue = (parse_number(word, "extraInfo") for word in words[:4])
        return ReceiptHandle(start, pop_ms, invisible_ms, revive_queue, words[4], words[5])


def check_point_key(group: str, topic: str, queue_id: int, handle: str) -> bytes:
    """What the acknowledgements of one check point have in common: `topic` is the one in which the messages waited.
    Receipt handles may be followed by what is of their message alone."""
    words = " ".join(handle.split(" ", HANDLE_WORDS)[:HANDLE_WORDS])
    return f"{group}\0{topic}\0{queue_id}\0{words}".encode("utf-8", "replace")


def receipt_handle_text(
    start_offset: int,
    pop_ms: int,
    invisible_ms: int,
    revive_queue: int,
    topic: str,
    broker: str,
    *queue_and_offset: int,
) -> str:
    """`queue_and_offset`: queue id and queue offset of the message."""
    words = (start_offset, pop_ms, invisible_ms, revive_queue, kind_of(topic), broker, *queue_and_offset)
    return " ".join(map(str, words))


def parse_number(text: str, field: str) -> int:
    """Parse a number that is not negative. Raises InvalidReceiptHandle."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidReceiptHandle(f"{field} must be a number from 0, not {text[:32]!r}")
    return int(text)


def retry_topic(topic: str, group: str, v2: bool) -> str:
    """The retry topic of messages that a popping group did not acknowledge in time."""
    return f"{name_rules.RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def kind_of(topic: str) -> str:
    """The kind of topic, as receipt handles and answers write it."""
    if not topic.startswith(name_rules.RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic that a client's topic and kind stand for. Raises InvalidReceiptHandle."""
    if kind == NORMAL:
        return topic
    if kind not in (RETRY_V1, RETRY_V2):
        raise InvalidReceiptHandle(f"the kind of topic must be 0, 1 or 2, not {kind[:32]!r}")
    return retry_topic(topic, group, kind == RETRY_V2)


def normal_topic(topic: str, group: str) -> str:
    """The topic that `topic` is the retry topic of, or `topic` itself."""
    for v2 in (True, False):
        prefix = retry_topic("", group, v2)
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic
