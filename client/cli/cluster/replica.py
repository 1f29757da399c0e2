"""Show masters and slaves; promote, rebuild and forget a slave.

A slave's offset, and whether it is in sync, are what its master says of it; its state and reason are its own words, if
it is FireArrow's. A slave that was in sync once and is away, or that must be there by totalReplicas or inSyncReplicas,
is `missing` until it is back, or an operator removes it. A connection of a master that may be of several slaves has a
row of its own, without an id."""

from collections.abc import Sequence
from typing import Any

from firearrow.client.admin_api import roles
from firearrow.client.admin_api.replicas import MISSING, Replica, replicas
from firearrow.client.base.errors import ClientError
from firearrow.client.cli.cluster import promotion
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command
from firearrow.client.cli.output import Colour, Column, Kind, bytes_text, titled

NEVER_JOINED = "never-joined"
COLUMNS = (
    Column("broker", "BROKER"),
    Column("brokerId", "ID", Kind.COUNT),
    *titled("role", "address"),
    Column("inSync", "IN SYNC", colour=lambda row: Colour.RED if row.get("inSync") is False else None),
    Column("state", "STATE"),
    Column("offset", "OFFSET", Kind.COUNT),
    Column("lagBytes", "LAG", Kind.BYTES),
    Column("lagMs", "LAG TIME", Kind.AGE),
    Column("lagMessages", "LAG MESSAGES", Kind.COUNT),
    Column("reason", "REASON"),
)


def main(arguments: Sequence[str]) -> int:
    command = Command("replica", __doc__)
    verb = command.verb("status", status)
    verb.argument("--broker", metavar="NAME", help="only this broker")
    verb = command.verb("promote", promotion.promote)
    promotion.add_arguments(verb)
    verb = command.verb("rebuild", rebuild)
    verb.argument("broker", metavar="ADDRESS|DIR", help=promotion.TARGET)
    verb.moving()
    verb = command.verb("forget", forget)
    verb.argument(
        "replica",
        metavar="ADDRESS|never-joined",
        nargs="?",
        help="the slave, as `firearrow replica status` shows it",
    )
    verb.argument("--all", action="store_true", help="forget all slaves that are missing at one master")
    verb.argument("--broker", metavar="NAME", help="brokerName, if several brokers miss a slave")
    verb.moving()
    return command.run(arguments)


async def status(call: Call) -> int:
    """Show the master and the slaves of each broker, and how much of the log each slave has. The exit code is 1 if a
    slave is not in sync; Apache brokers do not report the values shown as a dash.

        firearrow replica status
        firearrow replica status --broker broker-a
    """
    found = await replicas(await call.admin(), call.arguments.broker)
    call.output.rows(COLUMNS, map(_row, found))
    if not found:
        call.output.note("the name server knows no broker")
    return FOUND_TROUBLE if not found or any(each.is_trouble for each in found) else OK


async def rebuild(call: Call) -> int:
    """Let a slave copy the log of its master from the start, if the master cannot continue the log that the slave
    has. The old log is kept in a folder of the store.

        firearrow replica rebuild 10.0.0.2:10911
        firearrow replica rebuild /var/lib/firearrow/store --yes
    """
    target = call.arguments.broker
    if not call.may(f"set the log of {target} aside, and copy the whole log of its master"):
        return OK
    if promotion.is_folder(target):
        return promotion.offline("rebuild", [target, "--yes"])
    aside = await roles.rebuild(await call.admin(), target)
    call.output.done(
        f"{target} copies the whole log of its master; {bytes_text(aside.log_bytes)} of its old one are kept below "
        f"{aside.folder}",
        {"broker": target, "logBytes": aside.log_bytes, "folder": aside.folder},
    )
    return OK


async def forget(call: Call) -> int:
    """Remove a slave that does not return. Its master and the metrics expect it no longer.

    firearrow replica forget 10.0.0.2:10911
    firearrow replica forget --all --broker broker-a
    """
    name, is_all = call.arguments.replica, call.arguments.all
    if is_all == (name is not None):
        raise ClientError("name one slave, as `firearrow replica status` shows it, or give --all")
    admin = await call.admin()
    missing = [each for each in await replicas(admin, call.arguments.broker) if each.state == MISSING]
    found = [each for each in missing if is_all or (each.address or NEVER_JOINED) == name]
    brokers = sorted({each.broker for each in found})
    if len(brokers) != 1:
        what = "a slave" if is_all else "a slave of this address"
        known = f"several brokers miss {what}: add --broker" if brokers else f"no master misses {what}"
        raise ClientError(f"{name or '--all'}: {known} (firearrow replica status)")
    (broker,) = brokers
    names = ", ".join(each.address or NEVER_JOINED for each in found)
    if not call.may(f"let the master of {broker} expect {names} no more"):
        return OK
    if is_all:
        count = await roles.forget_missing(admin, broker)
        call.output.done(
            f"the master of {broker} expects {count} slaves no more", {"broker": broker, "forgotten": count}
        )
        return OK
    await roles.forget(admin, broker, found[0].address)
    call.output.done(f"the master of {broker} expects {name} no more", {"broker": broker, "replica": name})
    return OK


def _row(replica: Replica) -> dict[str, Any]:
    return {
        "broker": replica.broker,
        "brokerId": replica.broker_id,
        "role": "master" if replica.is_master else "slave",
        "address": replica.address or NEVER_JOINED,
        "inSync": replica.in_sync,
        "state": replica.state,
        "offset": replica.offset,
        "lagBytes": replica.lag_bytes,
        "lagMs": replica.lag_ms,
        "lagMessages": replica.lag_messages,
        "reason": replica.reason,
    }
