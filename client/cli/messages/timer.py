"""List timer and delayed messages that are not due yet, recall one, and show how late they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ConfigError, check
from firearrow.client.base.times import now_ms, time_ms, time_text
from firearrow.client.cli.command import Call, Command, count, of_each
from firearrow.client.cli.formats import members
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.send.recall import RecallHandle, recall

LIMIT, LIMIT_MAX = 100, 1000
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Java's name for a client's own requests."""
COLUMNS = (
    Column("dueMs", "DUE", Kind.TIME),
    Column("inMs", "IN", Kind.AGE),
    *titled("topic", "kind"),
    Column("msgId", "MESSAGE ID"),
    Column("keys", "KEYS"),
    Column("bytes", "SIZE", Kind.BYTES),
    Column("recallHandle", "RECALL HANDLE"),
)

LAG_COLUMNS = (
    Column("broker", "BROKER"),
    Column("lateMs", "LATE", Kind.AGE),
    *titled("waiting", "unsorted", "storedPerSecond", "deliveredPerSecond", kind=Kind.COUNT),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("timer", __doc__)
    verb = command.verb("list", list_pending)
    verb.argument("--topic", default="", help="only messages of this topic")
    verb.argument("--from", dest="since", metavar="TIME", help="due at this time or later")
    verb.argument("--to", dest="until", metavar="TIME", help="due until this time")
    verb.argument("--limit", type=count, default=LIMIT, metavar="N", help=f"maximum number (default {LIMIT})")
    verb = command.verb("recall", recall_one)
    verb.argument(
        "handle", metavar="HANDLE", help="handle that the send returned, or `firearrow timer list` shows"
    )
    verb.moving()
    command.verb("lag", lag)
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def list_pending(call: Call) -> None:
    """List timer and delayed messages that are not due yet. Only FireArrow brokers support this.

    firearrow timer list
    firearrow timer list --topic orders --to +1h
    """
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415

    given, admin = call.arguments, await call.admin()
    if given.limit > LIMIT_MAX:
        raise ConfigError(f"--limit must be at most {LIMIT_MAX}")
    listing = await Extensions(admin).pending_timers(
        given.topic,
        begin_ms=0 if given.since is None else time_ms(given.since),
        end_ms=None if given.until is None else time_ms(given.until),
        limit=given.limit,
    )
    due_next = sorted(listing, key=lambda pending: pending.due_ms)
    rows = [members(pending) | {"inMs": pending.due_ms - now_ms()} for pending in due_next]
    call.output.rows(COLUMNS, rows[: given.limit])
    if listing.more or len(rows) > given.limit:
        call.output.note("there are more: --limit shows them")


async def lag(call: Call) -> None:
    """Show how late the brokers deliver timer messages. Messages that are not sorted by their times yet are counted.

    firearrow timer lag
    firearrow timer lag --json
    """
    admin = await call.admin()
    brokers = list(await admin.calls.masters())
    found = await of_each(brokers, admin.broker_runtime)
    call.output.rows(LAG_COLUMNS, map(_lag_row, brokers, found))


def _lag_row(broker: str, runtime: Mapping[str, str]) -> dict[str, Any]:
    """None: the broker does not report it, as those before 5.0."""

    def number(name: str, factor: int = 1) -> float | None:
        try:
            value = float(runtime[name]) * factor
            return int(value) if value.is_integer() else round(value, 1)
        except (KeyError, ValueError):
            return None

    return {
        "broker": broker,
        "lateMs": number("timerReadBehind", 1000),
        "waiting": number("timerCongestNum"),
        "unsorted": number("timerOffsetBehind"),
        "storedPerSecond": number("timerEnqueueTps"),
        "deliveredPerSecond": number("timerDequeueTps"),
    }


async def recall_one(call: Call) -> None:
    """Delete a timer message before it is due. Its send returned the handle, and `firearrow timer list` shows it.

    firearrow timer recall djEg…
    firearrow timer recall djEg… --yes
    """
    handle = RecallHandle.decode(call.arguments.handle)
    admin = await call.admin()
    if handle.deliver_at_ms <= now_ms():
        raise ConfigError(f"the message was due at {time_text(handle.deliver_at_ms)}: it cannot be recalled")
    if not call.may(f"delete message {handle.message_id} of topic {handle.topic} before it is due"):
        return
    await _recall(admin, handle, call.arguments.handle, call.arguments.timeout)
    call.output.record({"topic": handle.topic, "msgId": handle.message_id, "dueMs": handle.deliver_at_ms})


async def _recall(admin: Admin, handle: RecallHandle, text: str, timeout_s: float) -> None:
    topic = admin.namespace.wrap(handle.topic)
    instance = admin.calls.instance
    check(
        await recall(instance, PRODUCER_GROUP, topic, handle, text, timeout_s),
        handle.broker_name,
    )
