"""Show ordered queues: who holds their locks, and what is at their head (FireArrow only)."""

from collections.abc import Sequence
from typing import Any

from firearrow.client.admin_api.extension_records import QueueLock
from firearrow.client.admin_api.extensions import Extensions
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


def _row(lock: QueueLock) -> dict[str, Any]:
    """What is not there is null: the group's offset, the head of an empty queue."""
    row = members(lock)
    if lock.committed < 0:
        row["committed"] = None
    return row if lock.head_offset >= 0 else row | {"headOffset": None, "headMsgId": None, "headAgeMs": None}
