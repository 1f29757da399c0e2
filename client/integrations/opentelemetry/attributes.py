"""Attributes of calls and messages: semantic conventions of messaging 1.43, with those of RocketMQ.

https://opentelemetry.io/docs/specs/semconv/messaging/rocketmq/
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.call_hooks import Call, CallKind
from firearrow.client.base.errors import BrokerError, code_name
from firearrow.client.base.message import Message, Property

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

Attributes = dict[str, "AttributeValue"]

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
BATCH_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
CONSUMER_GROUP = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
BODY_SIZE = "messaging.message.body.size"
NAMESPACE = "messaging.rocketmq.namespace"
CONSUMPTION_MODEL = "messaging.rocketmq.consumption_model"
TAG = "messaging.rocketmq.message.tag"
KEYS = "messaging.rocketmq.message.keys"
TYPE = "messaging.rocketmq.message.type"
GROUP = "messaging.rocketmq.message.group"
DELAY_LEVEL = "messaging.rocketmq.message.delay_time_level"
DELIVERY_TIMESTAMP = "messaging.rocketmq.message.delivery_timestamp"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"
OF_METRICS = frozenset({
    SYSTEM, OPERATION_NAME, OPERATION_TYPE, DESTINATION, CONSUMER_GROUP, SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE,
})  # fmt: skip
"""Those with few values. The queue is only in spans."""
DELAYS = (Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
DECISIONS = ("commit", "rollback")
"""Of a producer's transactions. The conventions have no type for them."""


def of_call(call: Call) -> Attributes:
    """What is known before the call."""
    caller = call.caller
    found: Attributes = {
        SYSTEM: "rocketmq",
        OPERATION_NAME: call.name,
        CLIENT_ID: caller.client_id,
        NAMESPACE: caller.namespace,
    }
    if call.name not in DECISIONS:
        found[OPERATION_TYPE] = call.kind.value
    if call.kind is not CallKind.SEND and call.name not in ("request", "check", *DECISIONS):
        found[CONSUMER_GROUP] = caller.group
        if caller.model is not None:
            found[CONSUMPTION_MODEL] = caller.model.lower()
    return found


def of_message(message: Message | ReceivedMessage) -> Attributes:
    found: Attributes = {DESTINATION: message.topic}
    if isinstance(message, ReceivedMessage):
        get: Callable[[str], str | None] = message.get_property
        group, delay = message.get_property(Property.SHARDING_KEY), Attributes()
        found[MESSAGE_ID], found[BODY_SIZE] = message.message_id, message.body_bytes
    else:
        get, group, delay = message.properties.get, message.sharding_key, _delay(message)
        found[BODY_SIZE] = len(message.body)
        if message.unique_id is not None:
            found[MESSAGE_ID] = message.unique_id
    found |= delay
    if message.tags:
        found[TAG] = message.tags
    if message.keys:
        found[KEYS] = tuple(message.keys)
    if conversation := get(Property.CORRELATION_ID):
        found[CONVERSATION_ID] = conversation
    if group:
        found[GROUP] = group
    if get(Property.TRANSACTION_PREPARED) == "true":
        found[TYPE] = "transaction"
    elif delay or any(get(name) is not None for name in DELAYS):
        found[TYPE] = "delay"
    else:
        found[TYPE] = "fifo" if group else "normal"
    return found


def _delay(message: Message) -> Attributes:
    if message.delay_level:
        return {DELAY_LEVEL: message.delay_level}
    if message.deliver_at_ms is not None:
        return {DELIVERY_TIMESTAMP: message.deliver_at_ms}
    if message.delay_s is not None:
        return {DELIVERY_TIMESTAMP: int((time.time() + message.delay_s) * 1000)}
    return {}


def split_common(each: Sequence[Mapping[str, "AttributeValue"]]) -> tuple[Attributes, list[Attributes]]:
    """What all messages have in common, for the span, and what differs, for the link of each."""
    common = {
        name: value
        for name, value in each[0].items()
        if all(name in other and other[name] == value for other in each[1:])
    }
    return common, [{name: own[name] for name in own.keys() - common.keys()} for own in each]


def of_server(call: Call) -> Attributes:
    """The broker and queue of the call, as far as they are known now, at its end."""
    queues = {
        (message.broker_name, message.queue_id)
        for message in call.messages
        if isinstance(message, ReceivedMessage)
    }
    queue = call.queue if call.result is None else call.result.queue
    if queue is not None:
        queues = {(queue.broker_name, queue.queue_id)}
    brokers = {name for name, _ in queues}
    if isinstance(call.error, BrokerError):
        brokers = {call.error.broker}
    found: Attributes = {}
    if len(queues) == 1:
        found[PARTITION] = str(queues.pop()[1])
    address = call.caller.address_of(brokers.pop()) if len(brokers) == 1 else None
    if address is not None:
        host, _, port = address.rpartition(":")
        found[SERVER_ADDRESS], found[SERVER_PORT] = host.strip("[]"), int(port)
    return found


def error_type(call: Call) -> str | None:
    """The name of a broker's response code, the class of another error, or what a handler returned."""
    if isinstance(call.error, BrokerError):
        name = code_name(call.error.code)
        return str(call.error.code) if name == "?" else name
    if call.error is not None:
        return type(call.error).__qualname__
    return call.failure or None


def for_metrics(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if name in OF_METRICS}
