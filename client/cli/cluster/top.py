"""Show the busiest topics and the groups with the largest lag."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.overview import GroupTotals, Overview, TopicTotals
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.times import now_ms, time_ms
from firearrow.client.cli.command import Call, Command, count, positive
from firearrow.client.cli.formats import is_of_user, is_system_group
from firearrow.client.cli.output import Column, Kind, titled

EVERY_S, ONCE_S, SHORTEST_S = 2.0, 1.0, 0.001
ROWS = 15
TOPIC_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("inPerSecond", "IN/S", Kind.COUNT),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("lastMs", "LAST MESSAGE", Kind.TIME),
)
GROUP_COLUMNS = (
    Column("group", "GROUP"),
    Column("outPerSecond", "CONSUMED/S", Kind.COUNT),
    Column("lag", "LAG", Kind.COUNT),
    Column("behindMs", "BEHIND", Kind.AGE),
)
SERIES_COLUMNS = (
    *titled("broker", "series"),
    *titled("least", "mean", "most", "last", kind=Kind.COUNT),
    Column("graph", ""),
)
BARS = "▁▂▃▄▅▆▇█"
GRAPH_WIDTH = 30
LARGE = 1000


def declared() -> Command:
    """The command with its verbs."""
    command = Command("top", __doc__)
    verb = command.only(top)
    verb.argument("--once", action="store_true", help="print one sample of --every seconds and end")
    verb.argument(
        "--every",
        type=positive,
        metavar="S",
        help="seconds from one sample to the next (default 2; with --once: 1)",
    )
    verb.argument(
        "--rows",
        type=count,
        default=ROWS,
        metavar="N",
        help=f"number of topics and groups on a terminal (default {ROWS})",
    )
    verb.argument(
        "--since", metavar="TIME", help="show rates and lags from this time until now (FireArrow only)"
    )
    verb.argument(
        "--series", default="", metavar="PREFIX", help="with --since: only series whose names start with this"
    )
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


class Sample(NamedTuple):
    """`at_s`: monotonic, when the brokers were asked."""

    at_s: float
    topics: Mapping[str, TopicTotals]
    groups: Mapping[str, GroupTotals]


async def top(call: Call) -> None:
    """Show the busiest topics and the groups with the largest lag, and refresh them. With --since it shows the history
    that FireArrow brokers keep.

        firearrow top --once --every 5
        firearrow top --since -1h
    """
    given = call.arguments
    if given.series and given.since is None:
        raise ConfigError("--series needs --since: it selects series of the history")
    admin = await call.admin()
    if given.since is not None:
        await _history(call, admin, time_ms(given.since), given.series)
        return
    before = await _sample(admin)
    every_s = given.every or (ONCE_S if given.once else EVERY_S)
    while True:
        await asyncio.sleep(max(before.at_s + every_s - time.monotonic(), 0))
        now = await _sample(admin)
        if not given.once:
            call.output.redraw()
        _print(call, before, now)
        if given.once:
            return
        call.output.flush()
        before = now


async def _sample(admin: Admin) -> Sample:
    overview = Overview(admin)
    system, configs = await asyncio.gather(admin.system_topics(), admin.groups())
    at_s = time.monotonic()
    topics = await overview.topics()
    groups = await overview.groups(name for name in configs if not is_system_group(name))
    return Sample(
        at_s,
        {name: found for name, found in topics.items() if is_of_user(name, system)},
        {name: found for name, found in groups.items() if found.lag is not None},
    )


def _print(call: Call, before: Sample, now: Sample) -> None:
    passed_s = max(now.at_s - before.at_s, SHORTEST_S)
    topics: list[dict[str, Any]] = []
    for name, topic in now.topics.items():
        old = before.topics.get(name)
        rate = 0.0 if old is None else max(round((topic.end - old.end) / passed_s, 1), 0.0)
        topics.append(
            {"topic": name, "inPerSecond": rate, "messages": topic.messages, "lastMs": topic.last_ms}
        )
    groups: list[dict[str, Any]] = []
    for name, group in now.groups.items():
        old_group = before.groups.get(name)
        rate = 0.0 if old_group is None else round((group.consumed - old_group.consumed) / passed_s, 1)
        groups.append({"group": name, "outPerSecond": rate, "lag": group.lag, "behindMs": group.behind_ms})
    topics.sort(key=lambda row: (-row["inPerSecond"], -row["messages"], row["topic"]))
    groups.sort(key=lambda row: (-row["lag"], -row["outPerSecond"], row["group"]))
    if call.output.json:
        at = {"atMs": now_ms()}
        call.output.rows((), (at | row for row in (*topics, *groups)))
        return
    call.output.rows(TOPIC_COLUMNS, topics[: call.arguments.rows])
    call.output.text("")
    call.output.rows(GROUP_COLUMNS, groups[: call.arguments.rows])


# ---- history ----


async def _history(call: Call, admin: Admin, since_ms: int, prefix: str) -> None:
    """Of each broker; JSON has all values of a series in one row."""
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415 (only for --since)

    extensions, rows = Extensions(admin), []
    for broker in await admin.calls.masters():
        history = await extensions.history(broker, since_ms, now_ms(), prefix)
        for name, values in sorted(history["series"].items()):
            row = {"broker": broker, "series": name}
            if call.output.json:
                row |= {"fromMs": history["fromMs"], "stepMs": history["stepMs"], "values": values}
            else:
                row |= _summary(values)
            rows.append(row)
    call.output.rows(SERIES_COLUMNS, rows)


def _summary(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"graph": ""}
    return {
        "least": _short(min(known)),
        "mean": _short(sum(known) / len(known)),
        "most": _short(max(known)),
        "last": _short(known[-1]),
        "graph": _graph(values),
    }


def _short(value: float) -> float:
    """Digits after the point only of small numbers."""
    return round(value) if abs(value) >= LARGE else round(value, 1)


def _graph(values: Sequence[float | None]) -> str:
    """GRAPH_WIDTH bars at most, each the largest of its part; a blank where nothing is known."""
    width = min(GRAPH_WIDTH, len(values))
    parts = [values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)]
    highest = [max((value for value in part if value is not None), default=None) for part in parts]
    top_value = max((value for value in highest if value is not None), default=0)
    return "".join(
        " " if value is None else BARS[int(value / top_value * (len(BARS) - 1)) if top_value > 0 else 0]
        for value in highest
    )
