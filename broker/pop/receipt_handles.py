"""Receipt: what a client gives back to acknowledge a popped message (POP_CK, ExtraInfoUtil), and POP's topic names."""

from typing import NamedTuple

from firearrow.broker.tables import name_rules

ORDER_REVIVE_QUEUE = 999
"""Stands in the receipt of a message that was popped in order: no check point was written for it."""
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
RECEIPT_HANDLE_CHARS_MAX = 1024
DIGITS_MAX = 18


class InvalidReceiptHandle(ValueError):
    """A receipt that cannot be read; the text says what is wrong."""


class ReceiptHandle(NamedTuple):
    """`start_offset` is where its pop began to read; times in ms."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    mark: str
    broker: str

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    @staticmethod
    def of(text: str) -> "ReceiptHandle":
        """InvalidReceiptHandle."""
        words = text.split(" ")
        if len(text) > RECEIPT_HANDLE_CHARS_MAX or len(words) < 6:
            raise InvalidReceiptHandle(f"extraInfo must have at least 6 words, not {text[:64]!r}")
        start, pop_ms, invisible_ms, revive_queue = (whole(word, "extraInfo") for word in words[:4])
        return ReceiptHandle(start, pop_ms, invisible_ms, revive_queue, words[4], words[5])


def receipt_handle_text(
    start_offset: int, pop_ms: int, invisible_ms: int, revive_queue: int, topic: str, broker: str, *place: int
) -> str:
    """`place`: queue and queue offset of the message."""
    words = (start_offset, pop_ms, invisible_ms, revive_queue, mark_of(topic), broker, *place)
    return " ".join(map(str, words))


def whole(text: str, field: str) -> int:
    """A number from 0. InvalidReceiptHandle."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidReceiptHandle(f"{field} holds {text[:32]!r} where a number was expected")
    return int(text)


def retry_topic(topic: str, group: str, v2: bool) -> str:
    """Where messages go that a popping group did not acknowledge in time."""
    return f"{name_rules.RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def mark_of(topic: str) -> str:
    """The kind of topic, as receipts and answers write it."""
    if not topic.startswith(name_rules.RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, mark: str) -> str:
    """The topic that a client means by its own topic and the mark. InvalidReceiptHandle."""
    if mark == NORMAL:
        return topic
    if mark not in (RETRY_V1, RETRY_V2):
        raise InvalidReceiptHandle(f"the kind of topic is 0, 1 or 2, not {mark[:32]!r}")
    return retry_topic(topic, group, mark == RETRY_V2)


def normal_topic(topic: str, group: str) -> str:
    """The topic whose unacknowledged messages `topic` holds, or itself."""
    for v2 in (True, False):
        prefix = retry_topic("", group, v2)
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic
