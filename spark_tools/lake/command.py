"""The command `firearrow export`: what is new in the log, appended to a table of Iceberg, Delta Lake or Paimon."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from firearrow._native.base.shared_arguments import shared_argument
from firearrow._native.base.verbs import REQUIRED, Command, argument, call
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.times import time_ms
from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption
from firearrow.spark_tools.lake.export import COMMIT_BYTES, Exported, to_delta, to_iceberg, to_paimon
from firearrow.spark_tools.plan.option_parsing import key_values

FAILED, WRONG_USAGE = 1, 2
NAME_SERVER = "127.0.0.1:9876"
FORMATS = ("delta", "iceberg", "paimon")


@dataclass(frozen=True, kw_only=True)
class TableArguments:
    """Which table gets the rows."""

    table: str = argument("table", REQUIRED, "the folder or URI of a Delta table, or NAMESPACE.TABLE")
    format: str = argument("--format", None, "format of the table", choices=FORMATS, required=True)
    catalog: str = argument(
        "--catalog", "default", "of Iceberg: its name in PyIceberg's configuration (default %(default)s)"
    )
    options: list[str] | None = argument(
        "--table-option",
        None,
        "option of the catalog (Iceberg, Paimon) or of the storage (Delta), such as warehouse=/data/lake; can be "
        "repeated",
        action="append",
        metavar="KEY=VALUE",
    )
    job: str | None = argument(
        "--job", None, "name under which the table keeps the offsets (default the topics)", metavar="NAME"
    )
    restart: bool = argument(
        "--restart", False, "ignore the offsets that the table has, and start at --from or --offsets"
    )
    commit_bytes: str = argument(
        "--commit-bytes",
        COMMIT_BYTES,
        "bytes of the log in one commit, about (default %(default)s)",
        metavar="SIZE",
    )


@dataclass(frozen=True, kw_only=True)
class LogArguments:
    """Which messages are taken."""

    path: list[str] | None = argument(
        "--path",
        None,
        "the folder of a store, read without its broker; can be repeated",
        action="append",
        metavar="FOLDER",
    )
    name_server: str | None = shared_argument(
        "--namesrv", None, help=f"the name servers (default NAMESRV_ADDR, or {NAME_SERVER})"
    )
    settings: list[str] | None = shared_argument("--source-option", None, action="append")
    topics: str | None = shared_argument("--topic", None)
    pattern: str | None = shared_argument("--pattern", None)
    since: str | None = shared_argument("--from", None, help="of a new export: stored at this time or later")
    offsets: str | None = argument(
        "--offsets",
        None,
        'of a new export: earliest, latest or {"topic": {"broker": {"0": 100}}} (default earliest)',
        metavar="OFFSETS",
    )
    tags: str | None = shared_argument("--tag", None, help="only messages with one of these tags: 'a || b'")
    sql: str | None = shared_argument("--sql", None)
    columns: str | None = argument(
        "--columns",
        None,
        "columns, separated by commas (default those of the table, all of a new one)",
        metavar="NAME,NAME",
    )
    open_bodies: bool = argument(
        "--open-bodies", True, "decompress bodies, or leave them as they are stored", off="--stored-bodies"
    )
    fail_on_data_loss: bool = argument(
        "--fail-on-data-loss", True, "stop if messages were deleted before they were read, or read the rest"
    )
    json: bool = argument("--json", False, "print the result as a JSON object")

    def source(self) -> str | list[str]:
        """InvalidOption."""
        if self.path and self.name_server:
            raise InvalidOption("--path and --namesrv exclude each other")
        return self.path or self.name_server or os.environ.get("NAMESRV_ADDR") or NAME_SERVER

    def as_options(self) -> dict[str, object]:
        """By the names of Spark's source. InvalidOption, ConfigError."""
        return {
            "topicPattern": self.pattern,
            "startingTimestamp": None if self.since is None else time_ms(self.since),
            "startingOffsets": self.offsets,
            "tags": self.tags,
            "sql": self.sql,
            "columns": self.columns,
            "openBodies": self.open_bodies,
            "failOnDataLoss": self.fail_on_data_loss,
            **key_values("--source-option", self.settings),
        }


def export(table: TableArguments, log: LogArguments) -> int:
    """Append what is new in the log to a table of Iceberg, Delta Lake or Paimon. The table keeps the offsets, so the
    same command appends each message once.

    firearrow export /data/orders --format delta --path ~/firearrow/store --topic Orders
    firearrow export sales.orders --format iceberg --catalog prod --namesrv a:9876 --topic Orders
    """
    settings = key_values("--table-option", table.options)
    given = {name: value for name, value in log.as_options().items() if value is not None}
    to: dict[str, Any] = {
        "job": table.job,
        "restart": table.restart,
        "maxBytesPerTrigger": table.commit_bytes,
    }
    if table.format == "delta":
        append: Callable[..., Exported] = to_delta
        to |= {"storage_options": settings}
    elif table.format == "iceberg":
        append = to_iceberg
        to |= {"catalog": table.catalog, "catalog_options": settings}
    else:
        append = to_paimon
        to |= {"catalog_options": settings}
    done = append(log.source(), log.topics, table.table, **given, **to)
    print(_shown(done, table.table, json=log.json))
    return 0


def _shown(done: Exported, table: str, *, json: bool) -> str:
    if json:
        return orjson.dumps(done).decode()
    lost = f"; {done.lost:,} were missing" if done.lost else ""
    return f"{table}: {done.rows:,} messages appended in {done.commits} commits, job {done.job}{lost}"


def main(arguments: Sequence[str]) -> int:
    """Append what is new in the log to a lake table."""
    command = Command("export", None)
    command.only(export).group(TableArguments).group(LogArguments)
    try:
        return int(call(command.parse(arguments, any_value=True)))
    except (*REFUSALS, ClientError) as error:
        print(f"firearrow export: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, InvalidOption | ConfigError) else FAILED
