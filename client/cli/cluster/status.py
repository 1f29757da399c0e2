"""Show the state of all brokers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import BrokerError, ClientError, OnlyFireArrow
from firearrow.client.base.times import now_ms
from firearrow.client.cli.command import FOUND_TROUBLE, Call, Command, of_each
from firearrow.client.cli.formats import is_of_user, is_system_group, real
from firearrow.client.cli.output import Column, Kind, red_if, titled
from firearrow.client.remoting.routes import MASTER

DISK_FULL_PERCENT = 90
COLUMNS = (
    *titled("broker", "address", "server", "version", "protocol"),
    Column("upMs", "UP", Kind.AGE),
    Column("inPerSecond", "IN/S", Kind.COUNT),
    Column("outPerSecond", "OUT/S", Kind.COUNT),
    Column("diskPercent", "DISK %", Kind.COUNT),
    Column("diskFullMs", "FULL IN", Kind.AGE),
    Column("oldestUnreadMs", "OLDEST UNREAD", Kind.AGE),
    Column("storedToday", "STORED TODAY", Kind.COUNT),
    Column("trouble", "TROUBLE", colour=red_if("trouble")),
)


TOPICS_SHOWN = 10
TOPIC_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("bytes", "DISK", Kind.BYTES),
    Column("messages", "MESSAGES", Kind.COUNT),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("status", __doc__)
    verb = command.only(status)
    verb.argument("--long", action="store_true", help="show all that FireArrow brokers report")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def status(call: Call) -> int:
    """Show the state of all brokers. The exit code is 1 if something is wrong.

    firearrow status
    firearrow status --long
    """
    admin = await call.admin()
    brokers = (await admin.calls.clusters()).brokers
    rows = await of_each(sorted(brokers), lambda name: _row(admin, name, brokers[name]))
    shown = rows if call.arguments.long or not call.output.json else [_without_report(row) for row in rows]
    call.output.rows(COLUMNS, shown)
    if not call.output.json and any(MASTER in ids for ids in brokers.values()):
        await _print_topics(call, admin, rows)
    if call.arguments.long and not call.output.json:
        for row in rows:
            call.output.text("")
            call.output.record(dict(_flat(row.get("status") or {})))
    if not rows:
        call.output.note("the name server knows no broker")
    return FOUND_TROUBLE if not rows or any(row["trouble"] for row in rows) else 0


async def _print_topics(call: Call, admin: Admin, rows: Sequence[Mapping[str, Any]]) -> None:
    """On a terminal, below the brokers: the largest topics of all, and how many topics and groups there are."""
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        for each in row.get("topics") or ():
            total = totals.setdefault(each["topic"], {"topic": each["topic"], "bytes": 0, "messages": 0})
            total["bytes"] += each["bytes"]
            total["messages"] += each["messages"]
    call.output.text("")
    if totals:
        call.output.rows(TOPIC_COLUMNS, _largest(totals.values()))
        call.output.text("")
    topics, system, groups = await asyncio.gather(admin.topics(), admin.system_topics(), admin.groups())
    call.output.text(
        f"{sum(is_of_user(name, system) for name in topics)} topics, "
        f"{sum(not is_system_group(name) for name in groups)} groups"
    )


def _largest(topics: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(topics, key=lambda row: (-row["bytes"], row["topic"]))[:TOPICS_SHOWN]


def _without_report(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "status"}


async def _row(admin: Admin, broker: str, ids: Mapping[int, str]) -> dict[str, Any]:
    """`status`: what only FireArrow's brokers report; None of Apache's."""
    row: dict[str, Any] = {"broker": broker, "address": ids.get(MASTER, "")}
    if MASTER not in ids:
        slaves = ", ".join(f"{number} at {address}" for number, address in sorted(ids.items()))
        return row | {"trouble": [f"its master is not there; slaves: {slaves}"]}
    try:
        facts, report, topics = await asyncio.gather(
            admin.broker_runtime(broker), _report(admin, broker), _topics(admin, broker)
        )
    except ClientError as error:
        return row | {"trouble": [str(error)]}
    disk = real(facts.get("commitLogDiskRatio"))
    full = None if disk is None or disk < 0 else round(100 * disk)
    started = int(real(facts.get("bootTimestamp")) or 0)
    trouble = [f"disk {full} % full"] if full is not None and full >= DISK_FULL_PERCENT else []
    if facts.get("brokerActive", "true") != "true":
        trouble.append("not active")
    if report is not None and not report.get("ready", True):
        trouble.append(str(report.get("unready")))
    trouble += _replicas_trouble(report or {})
    protocol = facts.get("brokerVersionDesc", "-").removeprefix("V").replace("_", ".")
    return row | {
        "server": "Apache" if report is None else "FireArrow",
        "version": protocol if report is None else str(report.get("version", "-")),
        "protocol": protocol,
        "upMs": now_ms() - started if started else None,
        "inPerSecond": _rate(facts.get("putTps")),
        "outPerSecond": _rate(facts.get("getTransferredTps") or facts.get("getTransferedTps")),
        "diskPercent": full,
        "diskFullMs": ((report or {}).get("disk") or {}).get("fullInMs"),
        **_unread(report or {}),
        "storedToday": _stored_today(facts),
        "topics": topics,
        "trouble": trouble,
        "status": report,
    }


def _unread(report: Mapping[str, Any]) -> dict[str, Any]:
    """Over all groups: unread messages, the age of the oldest one, and the group for which it waits."""
    lag = report.get("lag")
    if not lag:
        return {"unread": None, "oldestUnreadMs": None, "oldestUnreadGroup": None}
    oldest = max(report.get("groups") or (), key=lambda each: each["lagMs"], default=None)
    return {
        "unread": lag["messages"],
        "oldestUnreadMs": lag["maxMs"] if lag["messages"] else None,
        "oldestUnreadGroup": oldest["group"] if oldest is not None and lag["messages"] else None,
    }


async def _topics(admin: Admin, broker: str) -> list[dict[str, Any]] | None:
    """Those with the most bytes on disk; None: only FireArrow's brokers report them, to who may list all topics."""
    try:
        found = await Extensions(admin).topics(broker, sizes=True)
    except (OnlyFireArrow, BrokerError):
        return None
    return _largest(
        {
            "topic": name,
            "bytes": topic.bytes,
            "messages": sum(queue.max_offset - queue.min_offset for queue in topic.queues),
        }
        for name, topic in found.items()
        if topic.bytes
    )


def _replicas_trouble(report: Mapping[str, Any]) -> list[str]:
    """Slaves that the master misses, or that are not in sync."""
    replication = report.get("replication") or {}
    names = [str(each.get("name")) for each in replication.get("missing") or ()]
    never = int(replication.get("neverJoined") or 0)
    names += [f"{never} that never joined"] if never else []
    late = [str(each.get("addr")) for each in replication.get("slaves") or () if not each.get("inSync")]
    found = [f"slaves are missing: {', '.join(names)}"] if names else []
    return found + ([f"slaves are not in sync: {', '.join(late)}"] if late else [])


async def _report(admin: Admin, broker: str) -> dict[str, Any] | None:
    try:
        return await Extensions(admin).status(broker)
    except OnlyFireArrow:
        return None


def _rate(text: str | None) -> float | None:
    """The first of three rates: of the last ten seconds. Apache's brokers report none in their first ten seconds."""
    rates = (text or "").split()
    rate = real(rates[0]) if rates else None
    return None if rate is None else round(rate, 1)


def _stored_today(facts: Mapping[str, str]) -> int | None:
    now, morning = (real(facts.get(f"msgPutTotalToday{when}")) for when in ("Now", "Morning"))
    return None if now is None or morning is None else int(now - morning)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found
