"""Sends stored messages again: what of a message is kept, where a dead letter came from, what a copy names.

The body, tags, keys, sharding key, flag, the unique id and all properties of its users are kept, so that traces
(`traceparent`) go on; what brokers set for delays, transactions, POP, retries and dead letters is dropped.
"""

from collections.abc import Mapping

from firearrow._native.protocol.name_rules import BROKER_OWN, RETRIED, is_system_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message, Property
from firearrow.client.base.names import DLQ, RETRY

REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC = "REPLAY_JOB", "REPLAY_BROKER", "REPLAY_TOPIC"
REPLAY_QUEUE, REPLAY_OFFSET = "REPLAY_QUEUE", "REPLAY_OFFSET"
"""Properties by which a message names the one that it is a copy of; Spark's jobs set the same."""
SENT_APART = frozenset(
    {Property.KEYS, Property.TAGS, Property.WAIT, Property.UNIQUE_KEY, Property.SHARDING_KEY}
)
"""Members of a Message of their own."""
ORIGINS = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "REAL_TOPIC")
"""The most reliable first; REAL_TOPIC is that of the last delay, which can be the retry topic."""


def message_again(stored: ReceivedMessage, topic: str) -> Message:
    """The message to send, which starts over. BodyUnreadable."""
    message = message_copy(stored, topic)
    for name in RETRIED:
        message.properties.pop(name, None)
    return message


def message_copy(stored: ReceivedMessage, topic: str) -> Message:
    """The same message for another topic: a dead letter stays one. BodyUnreadable."""
    dropped = BROKER_OWN | SENT_APART
    properties = {name: value for name, value in stored.properties.items() if name not in dropped}
    return Message(
        topic,
        stored.body,
        tags=stored.tags,
        keys=stored.keys,
        properties=properties,
        sharding_key=stored.get_property(Property.SHARDING_KEY),
        flag=stored.flag,
        unique_id=stored.get_property(Property.UNIQUE_KEY),
    )


def retry_again(stored: ReceivedMessage, origin: str, retry_topic: str) -> Message:
    """The message for a group's retry topic: only this group gets it, as if it came from `origin`."""
    message = message_again(stored, retry_topic)
    message.properties[Property.RETRY_TOPIC] = origin
    return message


def origin_topic(group: str, properties: Mapping[str, str]) -> str | None:
    """The topic that a retry or dead letter of `group` was sent to at first; None: unknown."""
    for name in ORIGINS:
        topic = properties.get(name, "")
        for prefix in (f"{RETRY}{group}+", f"{RETRY}{group}_"):  # retries of POP have the topic in their name
            topic = topic.removeprefix(prefix)
        if topic and not topic.startswith((RETRY, DLQ)) and not is_system_topic(topic):
            return topic
    return None


def provenance(job: str, source: ReceivedMessage, topic: str) -> dict[str, str]:
    """The properties for a copy of `source`, which `topic` has, made by a job of this name."""
    return {
        REPLAY_JOB: job,
        REPLAY_BROKER: source.broker_name,
        REPLAY_TOPIC: topic,
        REPLAY_QUEUE: str(source.queue_id),
        REPLAY_OFFSET: str(source.queue_offset),
    }


def came_from(copy: ReceivedMessage, source: ReceivedMessage, topic: str) -> bool:
    """Whether the copy names this message of `topic`, whichever job made it."""
    named = provenance(copy.get_property(REPLAY_JOB, "") or "", source, topic)
    return all(copy.get_property(name, "") == value for name, value in named.items())
