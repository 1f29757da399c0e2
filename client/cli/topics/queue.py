"""Show ordered queues, unlock one, or park the message at its head (FireArrow only)."""

import contextlib
from collections.abc import Sequence
from typing import Any

from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.admin_api.extension_records import QueueLock
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command
from firearrow.client.cli.formats import members
from firearrow.client.cli.output import Column, Kind, titled

STUCK_MS = 60_000
"""A head that waits longer is reported by the exit code."""
COLUMNS = (
    *titled("topic", "broker"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("clientId", "LOCKED BY"),
    Column("connected", "CONNECTED"),
    Column("lockedMs", "SINCE", Kind.TIME),
    Column("lastRenewedMs", "RENEWED", Kind.TIME),
    Column("committed", "OFFSET", Kind.COUNT),
    Column("headMsgId", "HEAD MESSAGE"),
    Column("headAgeMs", "HEAD WAITS", Kind.AGE),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("queue", __doc__)
    verb = command.verb("who", who)
    verb.argument("group")
    for name, action in (("unlock", unlock), ("park", park)):
        verb = command.verb(name, action)
        verb.argument("group").argument("topic").argument("queue", type=int, help="number of the queue")
        verb.argument("--broker", help="the broker of the queue, if several have one of this number")
        verb.moving()
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def who(call: Call) -> int:
    """Show who holds the locks of the queues that a group consumes in order, and the message at the head of each. The
    exit code is 1 if a head has waited for over a minute, or if the holder of a lock is disconnected.

        firearrow queue who billing
        firearrow queue who billing --json
    """
    locks = await Extensions(await call.admin()).queue_locks(call.arguments.group)
    in_order = sorted(locks, key=lambda lock: (lock.topic, lock.broker, lock.queue_id))
    call.output.rows(COLUMNS, map(_row, in_order))
    if not len(locks):
        call.output.note(f"no member of {call.arguments.group} consumes a queue in order")
    stuck = [lock for lock in locks if not lock.connected or lock.head_age_ms > STUCK_MS]
    return FOUND_TROUBLE if stuck else OK


async def unlock(call: Call) -> None:
    """Take the lock of a queue that is consumed in order away from the member that holds it, so that another one can
    consume it. A member that is still connected may lock it again.

        firearrow queue unlock billing orders 3
        firearrow queue unlock billing orders 3 --broker broker-a --yes
    """
    admin, lock = await call.admin(), await _lock(call)
    if call.may(f"take the lock of queue {_name(lock)} away from {lock.client_id}"):
        await Operations(admin).unlock_queue(lock.group, _queue(lock), lock.client_id)
        call.output.done(f"queue {_name(lock)} is unlocked", members(lock))


async def park(call: Call) -> int:
    """Move the message at the head of a queue that is consumed in order to the dead letters of its group, and let the
    group continue after it. Its member does so at its next pull, within half a minute.

        firearrow queue park billing orders 3 --dry-run
        firearrow queue park billing orders 3 --yes
    """
    from firearrow.client.cli.messages.queue_reader import Span, TopicReader  # noqa: PLC0415 (reads messages)

    admin, lock = await call.admin(), await _lock(call)
    if lock.head_offset < 0:
        call.output.note(f"queue {_name(lock)} has no message that is not consumed")
        return FOUND_TROUBLE
    if not call.may(f"park message {lock.head_msg_id} at offset {lock.head_offset} of queue {_name(lock)}"):
        return OK
    queue = _queue(lock)
    span = {queue: Span(lock.head_offset, lock.head_offset + 1)}
    async with contextlib.aclosing(TopicReader(admin, lock.topic).stored(span)) as stored:
        async for head in stored:
            if head.queue_offset != lock.head_offset:
                break
            await Operations(admin).make_dead_letter(lock.group, head)
            await Operations(admin).reset_queue(lock.group, queue, lock.head_offset + 1)
            call.output.done(f"message {head.message_id} is a dead letter of {lock.group}", members(lock))
            return OK
    raise ClientError(f"the message at the head of queue {_name(lock)} cannot be read")


async def _lock(call: Call) -> QueueLock:
    """The lock that the arguments name. ClientError: there is none, or several."""
    given = call.arguments
    locks = [
        lock
        for lock in await Extensions(await call.admin()).queue_locks(given.group)
        if (lock.topic, lock.queue_id) == (given.topic, given.queue) and given.broker in (None, lock.broker)
    ]
    if not locks:
        raise ClientError(
            f"no member of {given.group} consumes queue {given.queue} of {given.topic} in order"
        )
    if len(locks) > 1:
        raise ClientError(f"{len(locks)} brokers have such a queue: name one with --broker")
    return locks[0]


def _queue(lock: QueueLock) -> MessageQueue:
    return MessageQueue(lock.topic, lock.broker, lock.queue_id)


def _name(lock: QueueLock) -> str:
    return f"{lock.queue_id} of {lock.topic} at {lock.broker}"


def _row(lock: QueueLock) -> dict[str, Any]:
    """What is not there is null: the group's offset, the head of an empty queue."""
    row = members(lock)
    if lock.committed < 0:
        row["committed"] = None
    return row if lock.head_offset >= 0 else row | {"headOffset": None, "headMsgId": None, "headAgeMs": None}
