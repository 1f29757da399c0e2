"""Names of kombu's queues and exchanges as names of topics and groups. Pure functions, reversible."""

import re
import string

from firearrow._native.protocol import name_rules
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import DLQ, RESERVED_GROUPS, RETRY

PLAIN = frozenset(string.ascii_letters + string.digits + "_-")
EXCHANGE = "exchange|_"
"""The start of an exchange's topic; no queue has it, as two hexadecimal digits follow each `|` of a queue's topic."""
ESCAPED = re.compile(r"((?:\|[0-9A-F]{2})+)")


def topic_of(queue: str) -> str:
    """The topic of a queue, and its group: bytes other than letters, digits, `_` and `-` are written as `|2E`.

    ConfigError: the name is empty or too long.
    """
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
    """The queue of a topic. ValueError: it is the topic of an exchange, or of no queue."""
    if topic.startswith(EXCHANGE):
        raise ValueError(f"topic {topic} belongs to an exchange")
    name = ESCAPED.sub(lambda match: bytes.fromhex(match[1].replace("|", "")).decode(), topic)
    if topic_of(name) != topic:
        raise ValueError(f"topic {topic} is not the topic of a queue")
    return name


def exchange_topic(exchange: str) -> str:
    """The topic from which temporary queues get the messages of an exchange. ConfigError: the name is too long."""
    topic = EXCHANGE + _encoded(exchange)
    if len(topic) > name_rules.TOPIC_CHARS_MAX:
        raise ConfigError(
            f"exchange {exchange[:80]!r}: its topic would have {len(topic)} characters, "
            f"at most {name_rules.TOPIC_CHARS_MAX} are allowed"
        )
    return topic


def retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Where brokers put messages that were not acknowledged in time: of older and of newer brokers."""
    return f"{RETRY}{group}_{topic}", f"{RETRY}{group}+{topic}"


def dead_letter_topic(queue: str) -> str:
    return DLQ + topic_of(queue)


def _encoded(name: str) -> str:
    return "".join(char if char in PLAIN else _hexadecimal(char) for char in name)


def _hexadecimal(text: str) -> str:
    return "".join(f"|{byte:02X}" for byte in text.encode())


def _is_system_group(name: str) -> bool:
    return name in name_rules.SYSTEM_GROUPS or name.startswith(name_rules.SYSTEM_GROUP_PREFIX)
