"""Sends stored messages again: what of a message is kept, where a dead letter came from, what a copy names.

What `message_copy` keeps is kept, and also what brokers set for retries and dead letters is dropped.
"""

from collections.abc import Mapping

from firearrow._native.protocol.name_rules import RETRIED, is_system_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message, Property, message_copy
from firearrow.client.base.names import DLQ, RETRY

REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC = "REPLAY_JOB", "REPLAY_BROKER", "REPLAY_TOPIC"
REPLAY_QUEUE, REPLAY_OFFSET = "REPLAY_QUEUE", "REPLAY_OFFSET"
"""Properties by which a message names the one that it is a copy of; Spark's jobs set the same."""
ORIGINS = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "REAL_TOPIC")
"""The most reliable first; REAL_TOPIC is that of the last delay, which can be the retry topic."""


def message_again(stored: ReceivedMessage, topic: str) -> Message:
    """The message to send, which starts over. BodyUnreadable."""
    message = message_copy(stored, topic)
    for name in RETRIED:
        message.properties.pop(name, None)
    return message


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
