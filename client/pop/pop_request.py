"""A POP request and its answer: what a broker hands out to one consumer for a time, each message with its receipt.

Knows the frames and how receipts are rebuilt from an answer; never waits and never keeps anything. Pure functions.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.pop.receipt_handles import (
    NORMAL,
    Group,
    InvalidReceiptHandle,
    OrderCounts,
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
"""How much longer than the broker may wait its answer is waited for."""
Opener = Callable[[int, bytes], bytes]


class PopStatus(Enum):
    FOUND = "FOUND"
    NOT_FOUND = "POLLING_NOT_FOUND"
    POLLING_FULL = "POLLING_FULL"
    """So many wait at the broker that it took no more: come back later."""


STATUSES = {
    int(ResponseCode.SUCCESS): PopStatus.FOUND,
    int(ResponseCode.POLLING_FULL): PopStatus.POLLING_FULL,
    int(ResponseCode.POLLING_TIMEOUT): PopStatus.NOT_FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PopStatus.NOT_FOUND,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """What is asked for. Topic, queue and group by the broker's names; queue id -1: any of that broker's queues."""

    group: str
    queue: MessageQueue
    subscription: Subscription
    batch: int
    invisible_ms: int
    wait_ms: int
    """How long the broker may hold the request until there is something; 0: not at all."""
    from_first: bool = False
    """Where a group begins that has no offset: at the oldest message, else behind the newest."""
    in_order: bool = False
    attempt: str | None = None
    """Tells a repeated pop in order from a new one."""


@dataclass(frozen=True, slots=True)
class PopResult:
    """`rest`: how many messages the broker says are left. Times in ms, 0 if nothing was found."""

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
    """Asks to be told when there is something to pop, and takes nothing."""
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
    """Each message under `user_topic`, with POP_CK set. BrokerError; ClientError: the answer cannot be read."""
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
    taken = _AnswerReceipts.of(answer, pop)
    if answer.text_or("startOffsetInfo", ""):
        _give_receipts(messages, answer, taken)
    else:
        _give_old_receipts(messages, taken)
    for message in messages:
        if message.get_property(Property.FIRST_POP_TIME) is None:
            message.put_property(Property.FIRST_POP_TIME, str(taken.pop_ms))
        message.topic = user_topic
    return PopResult(status, messages, rest, taken.pop_ms, taken.invisible_ms)


@dataclass(frozen=True, slots=True)
class _AnswerReceipts:
    """What all receipts of one answer have in common."""

    topic: str
    broker_name: str
    in_order: bool
    pop_ms: int
    invisible_ms: int
    revive_queue: int

    @staticmethod
    def of(answer: RemotingCommand, pop: PopRequest) -> "_AnswerReceipts":
        return _AnswerReceipts(
            pop.queue.topic,
            pop.queue.broker_name,
            pop.in_order,
            answer.integer("popTime"),
            answer.integer("invisibleTime"),
            answer.integer("reviveQid", 32),
        )

    def receipt(self, start_offset: int, group: Group, queue_offset: int) -> str:
        kind, queue_id = group
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


def _give_receipts(
    messages: Sequence[ReceivedMessage], answer: RemotingCommand, taken: _AnswerReceipts
) -> None:
    """The k-th message of a queue takes the k-th offset of that queue. What the broker gave a receipt keeps it."""
    starts = start_offsets(answer.text("startOffsetInfo"))
    offsets = message_offsets(answer.text_or("msgOffsetInfo", ""))
    counts = OrderCounts.of(answer.text_or("orderCountInfo", "") if taken.in_order else "")
    places = [_place(message, taken.topic) for message in messages]
    groups: dict[Group, list[int]] = {}
    for group, queue_offset in places:
        groups.setdefault(group, []).append(queue_offset)
    for message, (group, own_offset) in zip(messages, places, strict=True):
        if message.get_property(Property.POP_CHECK_POINT) is not None:
            continue
        try:
            told = offsets[group][groups[group].index(own_offset)]
            start = starts[group]
        except (KeyError, IndexError):
            raise InvalidReceiptHandle(
                f"msgOffsetInfo: nothing for queue {group[1]}, offset {own_offset}"
            ) from None
        if told != own_offset:
            log.warning("%s: popped at queue offset %d, stored at %d", message.message_id, told, own_offset)
        message.put_property(Property.POP_CHECK_POINT, taken.receipt(start, group, told))
        count = counts.times(group, own_offset)
        if count > 0:
            message.reconsume_times = count


def _give_old_receipts(messages: Sequence[ReceivedMessage], taken: _AnswerReceipts) -> None:
    """Brokers before 5.0 tell no offsets: a pop began at the first message of each queue."""
    starts: dict[tuple[str, int], int] = {}
    for message in messages:
        start = starts.setdefault((message.topic, message.queue_id), message.queue_offset)
        group = kind_of(message.topic), message.queue_id
        message.put_property(Property.POP_CHECK_POINT, taken.receipt(start, group, message.queue_offset))


def _place(message: ReceivedMessage, topic: str) -> tuple[Group, int]:
    """Where the answer's texts count this message; in a light queue it has an offset of its own."""
    if topic.startswith(LMQ_PREFIX) and message.reconsume_times == 0:
        names = (message.get_property(Property.MULTI_DISPATCH) or "").split(LMQ_SEPARATOR)
        offsets = (message.get_property(MULTI_QUEUE_OFFSET) or "").split(LMQ_SEPARATOR)
        if topic in names:
            return (NORMAL, LMQ_QUEUE_ID), _lmq_offset(names, offsets, topic)
    given = message.get_property(Property.POP_CHECK_POINT)
    kind = kind_of(message.topic) if given is None else ReceiptHandle.of(given).kind
    return (kind, message.queue_id), message.queue_offset


def _lmq_offset(names: list[str], offsets: list[str], topic: str) -> int:
    at = names.index(topic)
    if at >= len(offsets) or not offsets[at].isascii() or not offsets[at].isdecimal():
        raise InvalidReceiptHandle(f"{MULTI_QUEUE_OFFSET}: no offset for {topic}")
    return int(offsets[at])
