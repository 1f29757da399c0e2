"""PROPERTY_RULES: the properties that the broker acts on, what each does, and who may set it. The one place for it.

Who may send to a topic chooses the properties of its messages, and the header of the request names the topic alone.
So each property either concerns the message that has it, or needs a right on what it names, or is the broker's: then
what a client has set is removed before the broker acts on it. All requests that store properties follow the table:
sends, batches, replies, send-backs and transactions. tests/auth/test_property_rules.py compares it with the code.
"""

from enum import Enum
from typing import NamedTuple

from firearrow.broker.base.message import Property


class Setter(Enum):
    SENDER = "the sender: it concerns this message alone"
    RIGHT = "the sender, with a right on what it names"
    BROKER = "the broker: what a client has set has no effect"


class PropertyRule(NamedTuple):
    """`right`: what the sender needs more than to send to the topic. `fast`: the fast path stores it as it comes."""

    setter: Setter
    acts: str
    right: str = ""
    fast: bool = False


_SENDER, _RIGHT, _BROKER = Setter.SENDER, Setter.RIGHT, Setter.BROKER

PROPERTY_RULES: dict[str, PropertyRule] = {
    # of the message alone
    Property.KEYS: PropertyRule(_SENDER, "found by key, within its topic", fast=True),
    Property.TAGS: PropertyRule(_SENDER, "filtered by tag, within its topic", fast=True),
    Property.UNIQUE_KEY: PropertyRule(_SENDER, "found by unique key, within its topic", fast=True),
    Property.WAIT: PropertyRule(_SENDER, "whether the answer waits for the disk", fast=True),
    Property.SHARDING_KEY: PropertyRule(_SENDER, "counted as FIFO", fast=True),
    Property.PRIORITY: PropertyRule(_SENDER, "chooses the queue of its topic"),
    Property.LITE_TOPIC: PropertyRule(_SENDER, "in a topic of type LITE: puts it into this lite topic of it"),
    Property.DELAY: PropertyRule(_SENDER, "delays it by a level"),
    Property.TIMER_DELAY_SEC: PropertyRule(_SENDER, "delays it"),
    Property.TIMER_DELAY_MS: PropertyRule(_SENDER, "delays it"),
    Property.TIMER_DELIVER_MS: PropertyRule(_SENDER, "delays it"),
    Property.TIMER_OUT_MS: PropertyRule(_SENDER, "it was delayed already, and is not again"),
    Property.TRANSACTION_PREPARED: PropertyRule(_SENDER, "makes it a half message"),
    Property.CHECK_IMMUNITY_S: PropertyRule(_SENDER, "when its transaction is checked", fast=True),
    Property.ORIGIN_MESSAGE_ID: PropertyRule(_SENDER, "kept when it is sent back", fast=True),
    Property.RECONSUME_TIME: PropertyRule(_SENDER, "the attempts that a client of gRPC states", fast=True),
    Property.CORRELATION_ID: PropertyRule(_SENDER, "no user property for clients of gRPC", fast=True),
    Property.INSTANCE_ID: PropertyRule(_SENDER, "no user property for clients of gRPC", fast=True),
    # of something else
    Property.MULTI_DISPATCH: PropertyRule(_RIGHT, "also puts it into LMQs", "Topic Pub of each LMQ"),
    Property.TIMER_DELETE_KEY: PropertyRule(
        _RIGHT, "deletes a timer message of its unique key and time", "only a message of the same topic"
    ),
    Property.RETRY_TOPIC: PropertyRule(
        _RIGHT,
        "the topic that a retry or dead letter comes from, to which it is sent again",
        "in a retry topic or dead-letter queue, Topic Sub or Pub of it; else a send-back sets it",
        fast=True,
    ),
    Property.PRODUCER_GROUP: PropertyRule(
        _RIGHT,
        "whose producers end the transaction and are asked about it",
        "of a producer that is asked or ends it, Topic Pub of the half message",
        fast=True,
    ),
    Property.REPLY_TO_CLIENT: PropertyRule(
        _RIGHT, "the client that gets a reply", "only the user that announced the client first", fast=True
    ),
    # of the broker: removed from what is sent
    Property.MULTI_QUEUE_OFFSET: PropertyRule(_BROKER, "the offsets in LMQs; a batch with it is refused"),
    Property.POP_CHECK_POINT: PropertyRule(_BROKER, "the receipt handle of a popped message"),
    # of the broker: set, or removed, where the message enters the topic in which they count
    Property.REAL_TOPIC: PropertyRule(
        _BROKER, "the topic of what waits for a delay, a timer, a commit", fast=True
    ),
    Property.REAL_QUEUE_ID: PropertyRule(_BROKER, "its queue there", fast=True),
    Property.TIMER_ENQUEUE_MS: PropertyRule(_BROKER, "when the timer read it"),
    Property.TIMER_DEQUEUE_MS: PropertyRule(_BROKER, "when the timer delivered it"),
    Property.TIMER_ROLL_TIMES: PropertyRule(_BROKER, "which copy of a timer message counts"),
    Property.PREPARED_QUEUE_OFFSET: PropertyRule(
        _BROKER, "which half message this one is a copy of", fast=True
    ),
    Property.TRANSACTION_CHECKS: PropertyRule(_BROKER, "how often its producers were asked", fast=True),
    Property.TRANSACTION_ID: PropertyRule(_BROKER, "the unique key of a half message", fast=True),
    Property.FIRST_POP_TIME: PropertyRule(_BROKER, "when a revived message was popped first", fast=True),
    Property.DLQ_ORIGIN_TOPIC: PropertyRule(
        _BROKER, "the topic for which a dead letter was due, to which it is sent again", fast=True
    ),
    Property.ORIGIN_GROUP: PropertyRule(_BROKER, "the group that popped a revived message", fast=True),
    Property.REGION: PropertyRule(_BROKER, "set in each message"),
    Property.TRACE_ON: PropertyRule(_BROKER, "set in each message"),
    Property.CLUSTER: PropertyRule(_BROKER, "set in each message that is not a reply"),
    Property.PUSH_REPLY_TIME: PropertyRule(_BROKER, "set in each reply that is pushed", fast=True),
    Property.INNER_NUM: PropertyRule(_BROKER, "the messages of an inner batch; one alone with it is refused"),
    Property.INNER_BASE: PropertyRule(_BROKER, "the queue offset of its first message", fast=True),
    Property.BORN_TIMESTAMP: PropertyRule(_BROKER, "set in recalls", fast=True),
    Property.TRACE_CONTEXT: PropertyRule(_BROKER, "set in recalls", fast=True),
}

NEVER_SENT = (Property.MULTI_QUEUE_OFFSET, Property.POP_CHECK_POINT)
OF_INNER_BATCHES = (Property.INNER_NUM, Property.INNER_BASE)
OF_DEAD_LETTERS = (Property.DLQ_ORIGIN_TOPIC, Property.REAL_TOPIC, Property.REAL_QUEUE_ID)
"""In retry topics and dead-letter queues: where an operator sends it again, if RETRY_TOPIC, which needs a right, does
not report it."""
OF_TIMER = (Property.TIMER_ENQUEUE_MS, Property.TIMER_DEQUEUE_MS, Property.TIMER_ROLL_TIMES)
OF_TRANSACTION = (Property.PREPARED_QUEUE_OFFSET, Property.TRANSACTION_CHECKS)


def remove(properties: dict[str, str], names: tuple[str, ...]) -> None:
    """Remove what only the broker may set."""
    for name in names:
        properties.pop(name, None)
