"""A POP request and its answer, whose messages get receipt handles.

Builds the requests, and rebuilds the receipt handles from an answer. Pure functions.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, InvalidReceiptHandle
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.pop.receipt_handles import (
    NORMAL,
    OrderCounts,
    QueueKey,
    ReceiptHandle,
    kind_of,
    message_offsets,
    start_offsets,
)
from firearrow.client.rebalance.subscription import Subscription

log = logging.getLogger("firearrow.client")

ANY_QUEUE = -1
LMQ_PREFIX, LMQ_SEPARATOR, LMQ_QUEUE_ID = "%LMQ%", ",", 0
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
GRACE_S = 10.0
"""The timeout of a request is the broker's longest wait plus this."""
Opener = Callable[[int, bytes], bytes]


class PopStatus(Enum):
    FOUND = "FOUND"
    NOT_FOUND = "POLLING_NOT_FOUND"
    POLLING_FULL = "POLLING_FULL"
    """The broker holds too many requests and refused this one: retry later."""


STATUSES = {
    int(ResponseCode.SUCCESS): PopStatus.FOUND,
    int(ResponseCode.POLLING_FULL): PopStatus.POLLING_FULL,
    int(ResponseCode.POLLING_TIMEOUT): PopStatus.NOT_FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PopStatus.NOT_FOUND,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """One pop, with names as brokers know them. Queue id -1: any of that broker's queues."""

    group: str
    queue: MessageQueue
    subscription: Subscription
    batch: int
    invisible_ms: int
    wait_ms: int
    """How long the broker may hold the request until messages arrive; 0: not at all."""
    from_first: bool = False
    """A group without an offset starts at the oldest message; False: after the newest."""
    in_order: bool = False
    attempt: str | None = None
    """Distinguishes a repeated pop in order from a new one."""


@dataclass(frozen=True, slots=True)
class PopResult:
    """`rest`: how many messages are left at the broker. Times in ms, 0 if nothing was found."""

    status: PopStatus
    messages: list[ReceivedMessage]
    rest: int = 0
    pop_ms: int = 0
    invisible_ms: int = 0


def pop_command(pop: PopRequest, now_ms: int) -> RemotingCommand:
    ext = {
        "consumerGroup": pop.group,
        "topic": pop.queue.topic,
        "queueId": str(pop.queue.queue_id),
        "maxMsgNums": str(pop.batch),
        "invisibleTime": str(pop.invisible_ms),
        "pollTime": str(pop.wait_ms),
        "bornTime": str(now_ms),
        "initMode": "0" if pop.from_first else "1",
        "expType": pop.subscription.kind,
        "exp": pop.subscription.expression,
        "order": "true" if pop.in_order else "false",
        "bname": pop.queue.broker_name,
    }
    if pop.attempt is not None:
        ext["attemptId"] = pop.attempt
    return RemotingCommand.request(RequestCode.POP_MESSAGE, ext)


def notification_command(pop: PopRequest, now_ms: int) -> RemotingCommand:
    """A request that is answered when there are messages to pop, without popping any."""
    ext = {
        "consumerGroup": pop.group,
        "topic": pop.queue.topic,
        "queueId": str(pop.queue.queue_id),
        "pollTime": str(pop.wait_ms),
        "bornTime": str(now_ms),
        "order": "true" if pop.in_order else "false",
        "bname": pop.queue.broker_name,
    }
    return RemotingCommand.request(RequestCode.NOTIFICATION, ext)


def pop_result(answer: RemotingCommand, pop: PopRequest, opener: Opener, user_topic: str) -> PopResult:
    """Each message gets `user_topic` and the property POP_CK.

    BrokerError; ClientError: the answer is unreadable.
    """
    try:
        return _result(answer, pop, opener, user_topic)
    except (FieldError, RecordError) as error:
        broker_name = pop.queue.broker_name
        raise ClientError(f"{broker_name}: an answer that cannot be read: {error}") from error


def _result(answer: RemotingCommand, pop: PopRequest, opener: Opener, user_topic: str) -> PopResult:
    status = STATUSES.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark or "", pop.queue.broker_name)
    rest = answer.integer_or("restNum", 0)
    if status is not PopStatus.FOUND:
        return PopResult(status, [], rest)
    messages = decode_messages(answer.body, pop.queue.broker_name, opener)
    factory = _ReceiptFactory.of(answer, pop)
    if answer.text_or("startOffsetInfo", ""):
        _set_receipts(messages, answer, factory)
    else:
        _set_old_receipts(messages, factory)
    for message in messages:
        if message.get_property(Property.FIRST_POP_TIME) is None:
            message.put_property(Property.FIRST_POP_TIME, str(factory.pop_ms))
        message.topic = user_topic
    return PopResult(status, messages, rest, factory.pop_ms, factory.invisible_ms)


@dataclass(frozen=True, slots=True)
class _ReceiptFactory:
    """Builds the receipts of one answer; its fields are those that they have in common."""

    topic: str
    broker_name: str
    in_order: bool
    pop_ms: int
    invisible_ms: int
    revive_queue: int

    @staticmethod
    def of(answer: RemotingCommand, pop: PopRequest) -> "_ReceiptFactory":
        return _ReceiptFactory(
            pop.queue.topic,
            pop.queue.broker_name,
            pop.in_order,
            answer.integer("popTime"),
            answer.integer("invisibleTime"),
            answer.integer("reviveQid", 32),
        )

    def receipt(self, start_offset: int, key: QueueKey, queue_offset: int) -> str:
        kind, queue_id = key
        return ReceiptHandle(
            start_offset,
            self.pop_ms,
            self.invisible_ms,
            self.revive_queue,
            kind,
            self.broker_name,
            queue_id,
            queue_offset,
        ).text


def _set_receipts(
    messages: Sequence[ReceivedMessage], answer: RemotingCommand, factory: _ReceiptFactory
) -> None:
    """The k-th message of a queue gets the k-th offset of that queue. A receipt that a broker set is kept."""
    starts = start_offsets(answer.text("startOffsetInfo"))
    offsets = message_offsets(answer.text_or("msgOffsetInfo", ""))
    counts = OrderCounts.of(answer.text_or("orderCountInfo", "") if factory.in_order else "")
    positions = [_position(message, factory.topic) for message in messages]
    own_offsets: dict[QueueKey, list[int]] = {}
    for key, own_offset in positions:
        own_offsets.setdefault(key, []).append(own_offset)
    for message, (key, own_offset) in zip(messages, positions, strict=True):
        if message.get_property(Property.POP_CHECK_POINT) is not None:
            continue
        try:
            popped_offset = offsets[key][own_offsets[key].index(own_offset)]
            start = starts[key]
        except (KeyError, IndexError):
            raise InvalidReceiptHandle(
                f"msgOffsetInfo: no entry for queue {key[1]}, offset {own_offset}"
            ) from None
        if popped_offset != own_offset:
            log.info(
                "%s: popped at queue offset %d, but stored at %d",
                message.message_id,
                popped_offset,
                own_offset,
            )
        message.put_property(Property.POP_CHECK_POINT, factory.receipt(start, key, popped_offset))
        count = counts.times(key, own_offset)
        if count > 0:
            message.reconsume_times = count


def _set_old_receipts(messages: Sequence[ReceivedMessage], factory: _ReceiptFactory) -> None:
    """Brokers before 5.0 report no offsets: a pop starts at the first message of each queue."""
    starts: dict[tuple[str, int], int] = {}
    for message in messages:
        start = starts.setdefault((message.topic, message.queue_id), message.queue_offset)
        key = kind_of(message.topic), message.queue_id
        message.put_property(Property.POP_CHECK_POINT, factory.receipt(start, key, message.queue_offset))


def _position(message: ReceivedMessage, topic: str) -> tuple[QueueKey, int]:
    """The queue and offset of the message in the answer's offset strings; an LMQ has a separate offset."""
    if topic.startswith(LMQ_PREFIX) and message.reconsume_times == 0:
        names = (message.get_property(Property.MULTI_DISPATCH) or "").split(LMQ_SEPARATOR)
        offsets = (message.get_property(MULTI_QUEUE_OFFSET) or "").split(LMQ_SEPARATOR)
        if topic in names:
            return (NORMAL, LMQ_QUEUE_ID), _lmq_offset(names, offsets, topic)
    receipt = message.get_property(Property.POP_CHECK_POINT)
    kind = kind_of(message.topic) if receipt is None else ReceiptHandle.of(receipt).kind
    return (kind, message.queue_id), message.queue_offset


def _lmq_offset(names: list[str], offsets: list[str], topic: str) -> int:
    at = names.index(topic)
    if at >= len(offsets) or not offsets[at].isascii() or not offsets[at].isdecimal():
        raise InvalidReceiptHandle(f"{MULTI_QUEUE_OFFSET}: no offset for {topic}")
    return int(offsets[at])
