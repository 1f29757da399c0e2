"""Names of queues as names of topics and groups. Pure functions, reversible.

Frameworks allow any name; RocketMQ allows letters, digits, `_`, `-`, `|` and `%`. Letters, digits, `_` and `-` stay as
they are; each other byte of UTF-8 is written as `|` and two hexadecimal digits:

    mail          mail
    mail.high     mail|2Ehigh
    büro          b|C3|BCro
    a|b           a|7Cb
    TBW102        |54BW102      (else a topic of the broker's own)
"""

import re
import string

from firearrow._native.protocol import name_rules
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import RESERVED_GROUPS

__all__ = ["queue_of", "topic_of"]

PLAIN = frozenset(string.ascii_letters + string.digits + "_-")
"""Characters that stay as they are."""
ESCAPED = re.compile(r"((?:\|[0-9A-F]{2})+)")
"""Bytes that follow each other: together they are characters."""


def __dir__() -> list[str]:
    return sorted(__all__)


def topic_of(queue: str) -> str:
    """The topic of a queue; a valid name of a group as well. ConfigError: the name is empty or too long."""
    topic = _encoded(queue)
    if not topic:
        raise ConfigError("a queue must have a name")
    if name_rules.is_system_topic(topic) or topic in RESERVED_GROUPS or _is_system_group(topic):
        topic = _hexadecimal(topic[0]) + topic[1:]
    if len(topic) > name_rules.GROUP_CHARS_MAX:
        raise ConfigError(
            f"queue {queue[:80]!r}: its topic and group would have {len(topic)} characters, "
            f"at most {name_rules.GROUP_CHARS_MAX} are allowed"
        )
    return topic


def queue_of(topic: str) -> str:
    """The queue of a topic. ValueError: it is the topic of no queue."""
    name = ESCAPED.sub(lambda match: bytes.fromhex(match[1].replace("|", "")).decode(), topic)
    if topic_of(name) != topic:
        raise ValueError(f"topic {topic} is not the topic of a queue")
    return name


def _encoded(queue: str) -> str:
    try:
        return "".join(char if char in PLAIN else _hexadecimal(char) for char in queue)
    except (TypeError, UnicodeEncodeError):
        raise ConfigError(f"a queue must have a name, not {queue!r}") from None


def _hexadecimal(text: str) -> str:
    return "".join(f"|{byte:02X}" for byte in text.encode())


def _is_system_group(name: str) -> bool:
    return name in name_rules.SYSTEM_GROUPS or name.startswith(name_rules.SYSTEM_GROUP_PREFIX)
