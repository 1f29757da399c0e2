"""Converts messages: to a half message, its copy for a check, the final and the discarded message. Pure
functions.

A half message is the producer's message in another topic; its own topic and queue are in properties.
"""

from dataclasses import replace

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.append.appender import TIMER_REQUESTS, TRANSACTION_BITS, TRANSACTION_COMMIT, delay_level
from firearrow.broker.base import property_rules
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property

DISCARD_TOPIC = name_rules.DISCARD_TOPIC
GROUP = "CID_RMQ_SYS_TRANS"
"""Its offsets in the half topic and the op topic are the progress of both."""
DIGITS_MAX = 18
NO_QUEUE = "the half message has no valid real topic and queue"


def make_half(message: Message) -> None:
    """Turn a message into a half message. Raises Refusal if it could not be stored when committed."""
    properties = message.properties
    delay_level(properties)
    property_rules.remove(properties, property_rules.OF_TRANSACTION)
    if properties.get(Property.UNIQUE_KEY):
        properties[Property.TRANSACTION_ID] = properties[Property.UNIQUE_KEY]
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    message.sys_flag &= ~TRANSACTION_BITS
    message.topic, message.queue_id = name_rules.HALF_TOPIC, 0


def committed(half: Record) -> Message:
    """The final message, for its real topic. Raises Refusal if the half message has none.

    TRAN_MSG stays, as with Apache, unless a delay level or timer rewrites the properties.
    """
    message = Message.of_record(half)
    properties = message.properties
    topic, queue_id = real_queue(properties)
    del properties[Property.REAL_TOPIC], properties[Property.REAL_QUEUE_ID]
    if delay_level(properties) > 0 or not properties.keys().isdisjoint(TIMER_REQUESTS):
        properties.pop(Property.TRANSACTION_PREPARED, None)
    message.topic, message.queue_id = topic, queue_id
    message.sys_flag = message.sys_flag & ~TRANSACTION_BITS | TRANSACTION_COMMIT
    message.prepared_offset = half.physical_offset
    return message


def check_copy(half: Record, *, counted: bool) -> Message:
    """The copy for the end of the half queue, with one more check; one that is not `counted` waits for its check and
    keeps its first offset."""
    message = Message.of_record(half)
    properties = message.properties
    if counted:
        properties[Property.TRANSACTION_CHECKS] = str(check_count(properties) + 1)
    else:
        properties.setdefault(Property.PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    message.sys_flag &= ~TRANSACTION_BITS
    message.prepared_offset = 0
    return message


def check_count(properties: dict[str, str]) -> int:
    """How many checks were counted; a text that is not a number counts as none, as in `number_of`."""
    return number_of(properties.get(Property.TRANSACTION_CHECKS, "0"))


def discarded(half: Record) -> Message:
    """The message for the discard topic, where an administrator can resume it."""
    return replace(Message.of_record(half), topic=DISCARD_TOPIC, queue_id=0)


def resumed(discarded_half: Record) -> Message:
    """A half message again from a discarded one, with no checks counted."""
    message = replace(Message.of_record(discarded_half), topic=name_rules.HALF_TOPIC, queue_id=0)
    message.properties[Property.TRANSACTION_CHECKS] = "0"
    return message


def real_queue(properties: dict[str, str]) -> tuple[str, int]:
    """Topic and queue of the final message. Raises Refusal if they are missing or invalid."""
    topic, queue_id = properties.get(Property.REAL_TOPIC, ""), properties.get(Property.REAL_QUEUE_ID, "")
    if name_rules.topic_fault(topic) is not None or number_of(queue_id) < 0 or topic == name_rules.HALF_TOPIC:
        raise Refusal(ResponseCode.SYSTEM_ERROR, NO_QUEUE)
    return topic, int(queue_id)


def immunity_ms(properties: dict[str, str], timeout_ms: int) -> int | None:
    """For how long after its creation the message is not checked; None if it has no such property."""
    text = properties.get(Property.CHECK_IMMUNITY_S)
    if text is None:
        return None
    seconds = number_of(text)
    return timeout_ms if seconds == -1 else seconds * 1000


def number_of(text: str) -> int:
    """Parse a number; -1 if it is none."""
    digits = text[1:] if text[:1] in "+-" else text
    valid = digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX
    return int(text) if valid else -1
