"""Manage open transactions: list, ask again, commit and roll back."""

import contextlib
from collections.abc import Sequence

from firearrow.client.admin_api.cluster_admin import DISCARDED, Operations
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import Property
from firearrow.client.cli.command import Call, Command, count
from firearrow.client.cli.formats import members
from firearrow.client.cli.messages.half_messages import end_half, find_half, find_open
from firearrow.client.cli.output import Column, Kind
from firearrow.client.send.transactions import TransactionState

LIMIT, LIMIT_MAX = 100, 1000
OPEN_COLUMNS = (
    Column("bornMs", "BORN", Kind.TIME),
    Column("topic", "TOPIC"),
    Column("group", "PRODUCER GROUP"),
    Column("msgId", "MESSAGE ID"),
    Column("checks", "CHECKS", Kind.COUNT),
    Column("nextCheckMs", "NEXT CHECK", Kind.TIME),
    Column("bornHost", "BORN AT"),
)
DISCARDED_COLUMNS = (
    Column("bornMs", "BORN", Kind.TIME),
    Column("storedMs", "DISCARDED", Kind.TIME),
    Column("topic", "TOPIC"),
    Column("group", "PRODUCER GROUP"),
    Column("msgId", "MESSAGE ID"),
    Column("offsetMsgId", "OFFSET ID"),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("tx", __doc__)
    verb = command.verb("list", list_open)
    verb.argument("--group", help="only transactions of this producer group")
    verb.argument("--limit", type=count, default=LIMIT, metavar="N", help=f"maximum number (default {LIMIT})")
    verb.argument(
        "--discarded", action="store_true", help="list transactions that remained undecided after all checks"
    )
    verb = command.verb("ask", ask)
    verb.argument("id", metavar="ID", help="id that `firearrow tx list --discarded` shows").moving()
    for name, action in (("commit", commit), ("rollback", roll_back)):
        verb = command.verb(name, action)
        verb.argument("id", metavar="ID", help="message id, or offset id of the half message").moving()
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def list_open(call: Call) -> None:
    """List open transactions. With --discarded it lists those that remained undecided after all checks.

    firearrow tx list --group orders-producer
    firearrow tx list --discarded
    """
    given = call.arguments
    if given.limit > LIMIT_MAX:
        raise ConfigError(f"--limit must be at most {LIMIT_MAX}")
    if given.discarded:
        await _list_discarded(call)
        return
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415

    listing = await Extensions(await call.admin()).half_messages(given.group or "", limit=given.limit)
    oldest = sorted(listing, key=lambda half: half.born_ms)[: given.limit]
    call.output.rows(OPEN_COLUMNS, map(members, oldest))
    if listing.more or len(listing) > given.limit:
        call.output.note("there are more: --limit shows them")


async def _list_discarded(call: Call) -> None:
    from firearrow.client.cli.messages.queue_reader import From, Start, TopicReader  # noqa: PLC0415

    given, admin = call.arguments, await call.admin()
    reader = TopicReader(admin, DISCARDED)
    rows = []
    async with contextlib.aclosing(reader.stored(await reader.spans(Start(From.START)))) as messages:
        async for message in messages:
            group = message.get_property(Property.PRODUCER_GROUP, "")
            if given.group not in (None, group):
                continue
            rows.append(
                {
                    "bornMs": message.born_timestamp,
                    "storedMs": message.store_timestamp,
                    "topic": admin.namespace.unwrap(message.get_property("REAL_TOPIC", "") or ""),
                    "group": group,
                    "msgId": message.message_id,
                    "offsetMsgId": message.offset_message_id,
                    "tags": message.tags,
                    "keys": list(message.keys),
                }
            )
            if len(rows) == given.limit:
                break
    call.output.rows(DISCARDED_COLUMNS, rows)


async def ask(call: Call) -> None:
    """Let the broker ask the producers of a discarded transaction for its outcome again. An open transaction is
    refused, because the broker still checks it.

        firearrow tx ask 7F0000010001…
        firearrow tx ask 7F0000010001… --yes
    """
    # resuming an open one would store it twice
    admin = await call.admin()
    half = await find_half(admin, call.arguments.id, call.arguments.timeout)
    newest = await find_half(admin, half.message_id, call.arguments.timeout)
    if newest.topic != DISCARDED:
        raise ConfigError(
            f"{half.message_id} was not discarded: the broker asks its producers by itself, as long as it is open"
        )
    if not call.may(f"let {half.broker_name} ask for the outcome of {half.message_id} again"):
        return
    await Operations(admin).resume_check(half.get_property("REAL_TOPIC", "") or "", half.offset_message_id)
    call.output.note(f"{half.message_id} is open again")


async def commit(call: Call) -> None:
    """Commit an open transaction without its producer. Consumers get the message at once.

    firearrow tx commit 7F0000010001…
    firearrow tx commit 7F0000010001… --yes
    """
    await _end(call, TransactionState.COMMIT)


async def roll_back(call: Call) -> None:
    """Roll back an open transaction without its producer. Consumers never get the message.

    firearrow tx rollback 7F0000010001…
    firearrow tx rollback 7F0000010001… --yes
    """
    await _end(call, TransactionState.ROLLBACK)


async def _end(call: Call, state: TransactionState) -> None:
    admin = await call.admin()
    half = await find_open(admin, call.arguments.id, call.arguments.timeout)
    group = half.get_property(Property.PRODUCER_GROUP, "")
    topic = admin.namespace.unwrap(half.get_property("REAL_TOPIC", "") or "")
    word = "commit" if state is TransactionState.COMMIT else "roll back"
    if not call.may(f"{word} transaction {half.message_id} of producer group {group} (topic {topic})"):
        return
    await end_half(admin, half.message_id, state, call.arguments.timeout)
    call.output.record({"msgId": half.message_id, "topic": topic, "group": group, "state": state.name})
