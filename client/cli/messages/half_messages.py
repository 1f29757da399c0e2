"""Half messages: which are open, by what any broker can say; found by id, ended by an operator. Loop thread.

A half message is open if the broker's own progress (group CID_RMQ_SYS_TRANS) has not passed it and no op message
names it. Apache's broker writes op messages up to 3 s after a decision.
"""

import asyncio
import contextlib
from enum import Enum, auto

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import DISCARDED
from firearrow.client.admin_api.message_queries import MessageQueries, decode_offset_id
from firearrow.client.base.errors import ClientError, ConfigError, RocketMQError, check
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.cli.messages.queue_reader import Span, TopicReader
from firearrow.client.send.transactions import TransactionState, end_request

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
OPS_MAX = 100_000
"""Op messages that are read at most."""
INDEXED_S = 0.2
"""In this time a broker indexes what it has stored."""


class HalfState(Enum):
    OPEN = auto()
    ENDED = auto()
    UNKNOWN = auto()
    """The broker's progress or op messages cannot be read."""


async def half_state(admin: Admin, half: ReceivedMessage) -> HalfState:
    """Whether the transaction of a half message is open, by the copy that is given (checks store it again)."""
    halves = MessageQueue(HALF_TOPIC, half.broker_name, half.queue_id)
    ops = MessageQueue(OP_TOPIC, half.broker_name, half.queue_id)
    with contextlib.suppress(ClientError):  # 4.9's name server does not know the topics of half messages
        await admin.calls.instance.routes.refresh(half.get_property("REAL_TOPIC", "") or "")
    try:
        passed = await admin.offset(GROUP, halves) or 0
        if half.queue_offset < passed:
            return HalfState.ENDED
        begin, end = await admin.offset(GROUP, ops) or 0, await admin.max_offset(ops)
        begin = max(begin, await admin.min_offset(ops))
        if end - begin > OPS_MAX:
            return HalfState.UNKNOWN
        async for op in TopicReader(admin, OP_TOPIC).stored({ops: Span(begin, end)}):
            if str(half.queue_offset).encode() in op.body.split(b","):
                return HalfState.ENDED
    except RocketMQError:
        return HalfState.UNKNOWN
    return HalfState.OPEN


async def find_half(admin: Admin, message_id: str, timeout_s: float) -> ReceivedMessage:
    """The newest copy of a half message, or of a discarded one, by offset id or unique id. ClientError."""
    queries = MessageQueries(admin.calls.instance, timeout_s)
    masters = await admin.calls.masters()
    try:
        address, _ = decode_offset_id(message_id)
    except ClientError:
        address = ""
    if address in masters.values():
        found = await queries.by_offset_id(HALF_TOPIC, message_id)
        found.broker_name = next(name for name, here in masters.items() if here == address)
        if found.topic not in (HALF_TOPIC, DISCARDED):
            raise ClientError(f"{message_id} is a message of topic {found.topic}, not of an open transaction")
        return found
    copies = await queries.copies(HALF_TOPIC, message_id, masters)
    copies += await queries.copies(DISCARDED, message_id, masters)
    if not copies:
        raise ClientError(f"no broker has a half message {message_id}")
    return max(copies, key=lambda copy: copy.store_timestamp)


async def newest_state(admin: Admin, half: ReceivedMessage) -> tuple[ReceivedMessage, HalfState]:
    """The newest copy of a half message, and whether it is open.

    A check stores the half message again and ends the older copy, perhaps between two of our questions.
    """
    while (state := await half_state(admin, half)) is HalfState.ENDED:
        await asyncio.sleep(INDEXED_S)
        newest = await find_half(admin, half.message_id, admin.calls.instance.options.api_timeout_s)
        if newest.topic != HALF_TOPIC or newest.queue_offset == half.queue_offset:
            break
        half = newest
    return half, state


async def find_open(admin: Admin, message_id: str, timeout_s: float) -> ReceivedMessage:
    """The open copy of a half message, by the unique id or the offset id of any copy.

    ConfigError: it has ended, was discarded, or nothing can be known of it.
    """
    found = await find_half(admin, message_id, timeout_s)
    half = await find_half(admin, found.message_id, timeout_s)
    if half.topic != HALF_TOPIC:
        raise ConfigError(
            f"{half.message_id} was discarded after too many checks: resume it by `firearrow tx ask`, then end it"
        )
    topic = admin.namespace.unwrap(half.get_property("REAL_TOPIC", "") or "")
    queries = MessageQueries(admin.calls.instance, timeout_s)
    if topic and await queries.copies(topic, half.message_id, await admin.calls.masters()):
        raise ConfigError(f"the transaction {half.message_id} has ended: the message is in topic {topic}")
    half, state = await newest_state(admin, half)
    if state is HalfState.ENDED:
        raise ConfigError(f"the transaction {half.message_id} has ended")
    if state is HalfState.UNKNOWN:
        raise ConfigError(f"the broker does not say whether the transaction {half.message_id} is open")
    return half


async def end_half(admin: Admin, message_id: str, state: TransactionState, timeout_s: float) -> None:
    """End the transaction with the half message's own values, as its producer would. BrokerError: refused.

    ConfigError: it has ended, or this cannot be known: a second commit would deliver the message again, or deliver
    one that was rolled back.
    """
    half = await find_open(admin, message_id, timeout_s)
    group = half.get_property(Property.PRODUCER_GROUP, "") or ""
    topic = half.get_property("REAL_TOPIC", "") or ""
    request = end_request(
        group,
        topic,
        half.broker_name,
        (half.queue_offset, half.physical_offset),
        (half.message_id, half.transaction_id or ""),
        state,
    )
    ours = RemotingCommand.request(request.code, request.ext)
    address = (await admin.calls.masters())[half.broker_name]
    instance = admin.calls.instance
    check(await instance.call(address, ours, instance.options.api_timeout_s), half.broker_name)
