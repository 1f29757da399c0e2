"""Show the last lines of the brokers' logs (FireArrow only)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.times import time_text
from firearrow.client.cli.command import Call, Command, count
from firearrow.client.cli.formats import members
from firearrow.client.cli.output import Colour, Column, Kind, titled

LINES, LINES_MAX = 100, 1000
EVERY_S = 1.0
LEVELS = ("debug", "info", "warning", "error")
COLOURS = {"ERROR": Colour.RED, "CRITICAL": Colour.RED, "WARNING": Colour.YELLOW}


def _colour(row: Mapping[str, Any]) -> Colour | None:
    return COLOURS.get(row["level"])


COLUMNS = (
    Column("atMs", "TIME", Kind.TIME),
    Column("level", "LEVEL", colour=_colour),
    *titled("broker", "logger", "text"),
)


def declared() -> Command:
    """The command."""
    command = Command("log", __doc__)
    verb = command.only(log)
    verb.argument("--broker", help="only of this broker (default: all masters)")
    verb.argument("--level", choices=LEVELS, help="only lines of at least this level")
    verb.argument(
        "-l",
        "--lines",
        type=count,
        default=LINES,
        metavar="N",
        help=f"how many of each broker (default {LINES})",
    )
    verb.argument(
        "-f", "--follow", action="store_true", help="go on with the lines that are logged from now on"
    )
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def log(call: Call) -> None:
    """Show the last lines of the brokers' logs, which they keep in memory. With --follow the next ones come as well.

    firearrow log --level warning
    firearrow log --broker broker-a --follow
    """
    given = call.arguments
    if given.lines > LINES_MAX:
        raise ConfigError(f"--lines must be at most {LINES_MAX}")
    admin = await call.admin()
    brokers = [given.broker] if given.broker is not None else list(await admin.calls.masters())
    extensions, seen = Extensions(admin), dict.fromkeys(brokers, 0)
    level = (given.level or "").upper()
    rows = await _fresh(extensions, seen, level, given.lines)
    call.output.rows(COLUMNS, rows)
    while given.follow:
        call.output.flush()
        await asyncio.sleep(EVERY_S)
        for row in await _fresh(extensions, seen, level, LINES_MAX):
            if call.output.json:
                call.output.json_line(row)
            else:
                time = time_text(row["atMs"])
                call.output.shown(f"{time} {row['level']} {row['broker']} {row['logger']}: {row['text']}")


async def _fresh(
    extensions: Extensions, seen: dict[str, int], level: str, lines: int
) -> list[dict[str, Any]]:
    """Lines that were logged after those that were `seen` of each broker, by time."""
    rows: list[dict[str, Any]] = []
    for broker, number in seen.items():
        for line in await extensions.log(broker, after=number, level=level, limit=lines):
            rows.append(members(line))
            seen[broker] = line.number
    return sorted(rows, key=lambda row: row["atMs"])
