"""A message of kombu as a message of RocketMQ, and back. Pure functions.

The body is kombu's message in JSON. The task's id becomes a key, its name the tag, its ETA a delay.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kombu.utils.json import dumps, loads

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message, message_copy

RawMessage = dict[str, Any]
"""What kombu's virtual channels pass on: body, headers, properties, content-type, content-encoding."""

DELAY_LEFT = "kombu_delay_left_ms"
"""Property: what remains of a delay that is longer than a broker's timers, after this one."""
ROUTING_KEY = "kombu_routing_key"
"""Property of messages in the topic of an exchange."""
ETA, PASSED_ETA = "eta", "x-eta"
"""Headers: Celery's, for which a worker waits, and the one that keeps the time after the broker has waited."""
DELAY = "x-delay"
"""Header with a delay in ms, as RabbitMQ's plugin for delayed messages has it."""
LONG_AGO = "1970-01-01T00:00:00+00:00"
TAG = re.compile(r"[\w.:-]{1,100}", re.ASCII)


class Unreadable(ValueError):
    """The body is not a message of kombu."""


def to_message(topic: str, raw: RawMessage, delay_max_s: float) -> Message:
    headers = raw["headers"]
    delay_s = delay_of(headers)
    if delay_s is not None:
        raw = {**raw, "headers": {**headers, ETA: None, PASSED_ETA: headers.get(ETA)}}
    task, task_id = headers.get("task"), headers.get("id") or raw["properties"].get("correlation_id")
    message = Message(
        topic,
        dumps(raw).encode(),
        tags=task if isinstance(task, str) and TAG.fullmatch(task) else None,
        keys=[task_id] if isinstance(task_id, str) and TAG.fullmatch(task_id) else [],
    )
    if delay_s:
        delay(message, delay_s, delay_max_s)
    return message


def to_exchange(topic: str, routing_key: str, raw: RawMessage) -> Message:
    """For the topic of an exchange: the tag lets brokers filter by routing key."""
    properties = {ROUTING_KEY: routing_key} if routing_key else {}
    return Message(topic, dumps(raw).encode(), tags=tag_of(routing_key), properties=properties)


def of_message(message: ReceivedMessage) -> RawMessage:
    """Unreadable: it is not a message of kombu."""
    try:
        raw = loads(message.body)
        properties = raw["properties"]
        if not (isinstance(properties["delivery_info"], dict) and isinstance(raw["headers"], dict)):
            raise TypeError("delivery_info and headers must be objects")
        raw["body"], properties["delivery_tag"], raw["content-type"], raw["content-encoding"]  # must be there
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise Unreadable(f"{message.message_id} is not a message of kombu: {error!r}") from error
    return dict(raw)


def tag_of(routing_key: str) -> str:
    """Routing keys may contain what tags may not."""
    return hashlib.sha256(routing_key.encode()).hexdigest()[:16]


def delay_of(headers: Mapping[str, Any]) -> float | None:
    """Seconds until the message is due by this process's clock, 0 if it is; None: it has no ETA that can be read."""
    due, wait_ms = headers.get(ETA), headers.get(DELAY)
    if isinstance(wait_ms, int | float) and not isinstance(wait_ms, bool):
        return max(wait_ms / 1000, 0.0)
    try:
        at = datetime.fromisoformat(due) if isinstance(due, str) else due
    except ValueError:
        return None
    if not isinstance(at, datetime):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max((at - datetime.now(UTC)).total_seconds(), 0.0)


def priority_of(raw: RawMessage, priorities: int) -> int:
    """From 0 to the highest one of a queue with that number of priorities."""
    priority = raw["properties"].get("priority")
    return min(max(priority, 0), priorities - 1) if isinstance(priority, int) else 0


def lifetime_s(raw: RawMessage) -> float | None:
    """How long it may wait in its queue: AMQP's `expiration`, in ms; None: for ever.

    A task that Celery sent with `expires` is not dropped: the worker that gets it reports that it was revoked.
    """
    text = raw["properties"].get("expiration")
    if raw["headers"].get("expires") is not None or not isinstance(text, str):
        return None
    return int(text) / 1000 if text.isascii() and text.isdecimal() and len(text) < 16 else None


def delay(message: Message, delay_s: float, delay_max_s: float) -> None:
    """Brokers count a delay from when they get the message, so that their clock does not matter."""
    message.delay_s = min(delay_s, delay_max_s)
    left_ms = round((delay_s - message.delay_s) * 1000)
    message.properties.pop(DELAY_LEFT, None)
    if left_ms > 0:
        message.properties[DELAY_LEFT] = str(left_ms)


def delay_left_s(message: ReceivedMessage) -> float:
    text = message.get_property(DELAY_LEFT) or "0"
    return int(text) / 1000 if text.isascii() and text.isdecimal() and len(text) < 16 else 0.0


def expired(message: ReceivedMessage, topic: str) -> Message:
    """The task so that no worker runs it: the one that gets it stores and reports that it was revoked. Unreadable."""
    raw = of_message(message)
    raw["headers"]["expires"] = LONG_AGO
    return replace(message_copy(message, topic), body=dumps(raw).encode())
