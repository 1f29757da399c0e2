"""Query topics with SQL: each topic that a statement names is a table of DuckDB, of which only the columns, times,
tags, keys and offsets that it needs are read. One thread.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from firearrow._native.base.shared_arguments import shared_argument
from firearrow._native.base.verbs import REQUIRED, Command, argument, call
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.times import time_ms
from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption, SparkToolsError
from firearrow.spark_tools.tables.dataset import Where, dataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

FAILED, WRONG_USAGE = 1, 2
NAME_SERVER = "127.0.0.1:9876"
ROWS_SHOWN = 1000
OWN_ERROR = re.compile(
    r"\b(?:InvalidOption|TopicNotFound|DataLoss|Unreachable|RequestRefused): (.+)", re.DOTALL
)
"""In the text of DuckDB's error."""
MISSING = "SQL needs the package duckdb: pip install duckdb"


class StatementRefused(SparkToolsError):
    """DuckDB cannot run the statement; the text is its own."""


def to_duckdb(
    source: Where,
    topic: str | Sequence[str] | None = None,
    *,
    connection: "DuckDBPyConnection | None" = None,
    **options: Any,  # noqa: ANN401 (those of `dataset`)
) -> "DuckDBPyRelation":
    """The messages as a relation of DuckDB, in its default connection or in this one; other arguments as for `dataset`.
    The relation is read again each time it is used. InvalidOption."""
    duckdb = _duckdb()
    found = dataset(source, topic, **options)
    relation: DuckDBPyRelation = (connection or duckdb.default_connection()).from_arrow(found)
    return relation


def query(statement: str, source: Where, **options: Any) -> pa.RecordBatchReader:  # noqa: ANN401 (those of `dataset`)
    """What a SELECT over topics returns; a topic whose name is no SQL name is quoted: `select count(*) from "a-b"`.
    StatementRefused, InvalidOption; SparkToolsError if the topics cannot be read."""
    duckdb = _duckdb()
    connection = duckdb.connect(
        config={"enable_external_access": "false", "allow_community_extensions": "false"}
    )
    try:
        kinds = [each.type for each in connection.extract_statements(statement)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise StatementRefused("give one SELECT: topics cannot be changed")
        for name in sorted(connection.get_table_names(statement)):
            connection.register(name, dataset(source, name, **options))
        return connection.sql(statement).to_arrow_reader()
    except duckdb.Error as error:
        own = OWN_ERROR.search(str(error))
        raise (StatementRefused(str(error)) if own is None else SparkToolsError(own[1])) from None


def _duckdb() -> Any:  # noqa: ANN401 (the module)
    try:
        import duckdb  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InvalidOption(MISSING) from None
    return duckdb


# ---- the command ----


@dataclass(frozen=True, kw_only=True)
class SqlArguments:
    statement: str = argument("statement", REQUIRED, "a SELECT; topics are its tables")
    path: list[str] = argument(
        "--path",
        None,
        "the folder of a store, read without its broker; several times for several",
        action="append",
        metavar="FOLDER",
    )
    namesrv: str | None = argument(
        "--namesrv", None, f"the name servers (default NAMESRV_ADDR, or {NAME_SERVER})", metavar="HOST:PORT"
    )
    since: str | None = shared_argument("--from", None)
    until: str | None = shared_argument("--to", None)
    ignore_losses: bool = argument(
        "--no-fail-on-data-loss", False, "read the rest if messages are missing, instead of failing"
    )
    json: bool = argument("--json", False, "print JSON Lines, as without a terminal")


def run_sql(given: SqlArguments) -> int:
    """Query topics with SQL, in the files of a store or at live brokers. Needs DuckDB: pip install duckdb.

    firearrow sql "select tags, count(*) from Orders group by tags" --path ~/firearrow/store
    firearrow sql "select avg((decode(body)->>'price')::double) from Orders" --from 2026-01-01
    """
    if given.path and given.namesrv:
        raise InvalidOption("--path and --namesrv exclude each other")
    source = given.path or given.namesrv or os.environ.get("NAMESRV_ADDR") or NAME_SERVER
    found = query(
        given.statement,
        source,
        since=None if given.since is None else time_ms(given.since),
        until=None if given.until is None else time_ms(given.until),
        failOnDataLoss=not given.ignore_losses,
    )
    if given.json or not sys.stdout.isatty():
        _print_lines(found)
    else:
        _duckdb().from_arrow(found.read_all()).show(max_rows=ROWS_SHOWN)
    return 0


def _print_lines(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for row in batch.to_pylist():
            sys.stdout.buffer.write(orjson.dumps(row, default=_plain, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def _plain(value: object) -> Any:  # noqa: ANN401
    """What JSON does not have, as text. Sums of whole numbers are HUGEINT in DuckDB, which Arrow has as decimals."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0 and abs(value) < 1 << 63:
        return int(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def main(arguments: Sequence[str]) -> int:
    """Query topics with SQL."""
    command = Command("sql", None)
    command.only(run_sql).group(SqlArguments)
    try:
        return int(call(command.parse(arguments)))
    except (*REFUSALS, ConfigError, pa.ArrowException) as error:
        print(f"firearrow sql: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, InvalidOption | StatementRefused | ConfigError) else FAILED
