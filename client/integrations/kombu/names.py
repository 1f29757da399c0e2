"""Names of exchanges as names of topics, and the other topics of a queue. Pure functions; queues: see topic_names."""

from firearrow._native.protocol import name_rules
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.integrations.topic_names import topic_of

EXCHANGE = "exchange|_"
"""The start of an exchange's topic; no queue has it, as two hexadecimal digits follow each `|` of a queue's topic."""


def exchange_topic(exchange: str) -> str:
    """The topic from which temporary queues get the messages of an exchange. ConfigError: the name is too long."""
    topic = EXCHANGE + (topic_of(exchange) if exchange else "")
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
    """The topic with the tasks of a queue that were given up. ConfigError."""
    return DLQ + topic_of(queue)
