"""Which messages go to the timer, and when they are due (HookUtils; store-and-broker §6.2).

The appender calls `schedule` for messages with a timer property. It changes only the message, whose topic
becomes the timer's.
"""

import random
from collections.abc import Callable
from typing import NoReturn

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base import property_rules
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.options import Options

DIGITS_MAX = 18
"""More digits would not fit Java's long."""


def schedule(message: Message, now_ms: int, options: Options, slot_count: Callable[[int], int]) -> None:
    """Redirect `message` to the timer's topic, due at its rounded time; one that is due already is not
    changed.

    `slot_count(ms)`: how many messages are pending in the slot of that time. Raises Refusal and then changes
    nothing.
    """
    if not options.timer_topic:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    properties = message.properties
    deliver_ms = deliver_time(properties, now_ms)
    if deliver_ms is None or deliver_ms - now_ms > options.timer_max_delay_s * 1000:
        _refuse_time(options)
    if deliver_ms <= now_ms:
        if Property.TIMER_DELETE_KEY in properties:
            _refuse_time(options)
        return
    out_ms = out_time(deliver_ms, options.timer_precision_ms)
    if is_crowded(slot_count(out_ms), options.timer_slot_messages):
        limit = options.timer_slot_messages
        remark = (
            f"timer message is under flow control, max num limit is {limit * 2} or the current value is "
            f"greater than {limit} and less than {limit * 2}, trigger random flow control"
        )
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    property_rules.remove(properties, property_rules.OF_TIMER)
    properties[Property.TIMER_OUT_MS] = str(out_ms)
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    message.topic, message.queue_id = name_rules.TIMER_TOPIC, 0


def deliver_time(properties: dict[str, str], now_ms: int) -> int | None:
    """The delivery time that the message requests, in ms since 1970; None if the property is not a number."""
    if Property.TIMER_DELAY_SEC in properties:
        seconds = parse_number(properties[Property.TIMER_DELAY_SEC])
        return None if seconds is None else now_ms + seconds * 1000
    if Property.TIMER_DELAY_MS in properties:
        delay_ms = parse_number(properties[Property.TIMER_DELAY_MS])
        return None if delay_ms is None else now_ms + delay_ms
    return parse_number(properties[Property.TIMER_DELIVER_MS])


def out_time(deliver_ms: int, precision_ms: int) -> int:
    """The slot that ends at `deliver_ms`, or less than one precision step after it."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def is_crowded(count: int, limit: int) -> bool:
    """Decide at random: above the limit the share of refusals grows, to all at twice the limit."""
    return count > limit and random.random() * limit < count - limit


def parse_number(text: str) -> int | None:
    """Parse a decimal number that fits Java's long; None if it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX):
        return None
    return int(text)


def _refuse_time(options: Options) -> NoReturn:
    raise Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{options.timer_max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the "
        "current time",
    )
