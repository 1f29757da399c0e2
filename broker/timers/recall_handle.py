"""The handle by which a client recalls a timer message, and the message that does it. Pure functions.

A handle is the URL-safe base64 of `v1 topic broker time unique-key`; its time is in the slot of the message.
"""

import base64
import binascii
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow.broker.base.message import Message, Property

VERSION = "v1"
FIELDS = 5
TAG = "_RECALL_TAG_"
BODY = b"0"


class InvalidRecallHandle(ValueError):
    """A string that is not a recall handle."""


class RecallHandle(NamedTuple):
    topic: str
    broker: str
    time: str
    unique_key: str

    @staticmethod
    def parse(text: str) -> "RecallHandle":
        """Decode a handle. Raises InvalidRecallHandle."""
        try:
            padded = text + "=" * (-len(text) % 4)
            fields = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8").split(" ")
        except (binascii.Error, ValueError):
            raise InvalidRecallHandle("recall handle is invalid") from None
        if len(fields) < FIELDS or fields[0] != VERSION:
            raise InvalidRecallHandle("recall handle is invalid")
        return RecallHandle(*fields[1:FIELDS])

    def text(self) -> str:
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode()).decode()


def recall_handle(message: Message, broker: str) -> str | None:
    """The handle of a message that went to the timer; None if it cannot be recalled."""
    out_ms = message.properties.get(Property.TIMER_OUT_MS)
    topic = message.properties.get(Property.REAL_TOPIC)
    if out_ms is None or not out_ms.isdecimal() or topic is None or topic.startswith(name_rules.RETRY_PREFIX):
        return None
    unique_key = message.properties.get(Property.UNIQUE_KEY, "")
    return RecallHandle(topic, broker, str(int(out_ms) + 1), unique_key).text()


def delete_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """The key by which a recall names the message that it deletes (option `appendTopicForTimerDeleteKey`)."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def recall_message(
    handle: RecallHandle, group: str, now_ms: int, born_host: bytes, *, with_topic: bool
) -> Message:
    """The message that recalls the one of `handle`; the timer puts it into the same slot."""
    key = delete_key(handle.topic, handle.unique_key, with_topic=with_topic)
    properties = {
        Property.TAGS: TAG,
        Property.TIMER_DELETE_KEY: key,
        Property.UNIQUE_KEY: handle.unique_key,
        Property.TIMER_DELIVER_MS: handle.time,
        Property.BORN_TIMESTAMP: str(now_ms),
        Property.TRACE_CONTEXT: "",
        Property.PRODUCER_GROUP: group,
    }
    return Message(handle.topic, 0, BODY, properties, born_ms=now_ms, born_host=born_host)
