"""An audit as Parquet: findings, counts, queues, lag. One file each, whole or not there."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from firearrow._native.store_checks.audit import StoreResult
from firearrow._native.store_checks.findings import as_row
from firearrow._native.store_checks.top_counts import TopCounts
from firearrow.spark_tools.base.errors import InvalidOption

TEXT, LONG, INT, TIME = pa.string(), pa.int64(), pa.int32(), pa.timestamp("ms", tz="UTC")
HOUR_MS = 3_600_000

FINDINGS = pa.schema(
    {
        "kind": TEXT,
        "store": TEXT,
        "file": TEXT,
        "position": LONG,
        "text": TEXT,
        "physical_offset": LONG,
        "topic": TEXT,
        "queue_id": INT,
        "queue_offset": LONG,
        "count": LONG,
        "bytes": LONG,
    }
)
COUNTS = pa.schema(
    {
        "store": TEXT,
        "by": TEXT,
        "topic": TEXT,
        "tag": TEXT,
        "host": TEXT,
        "hour": TIME,
        "messages": LONG,
        "bytes": LONG,
    }
)
QUEUES = pa.schema(
    {
        "store": TEXT,
        "topic": TEXT,
        "queue_id": INT,
        "first": LONG,
        "end": LONG,
        "messages": LONG,
        "bytes": LONG,
        "first_ms": TIME,
        "last_ms": TIME,
    }
)
LAG = pa.schema(
    {
        "store": TEXT,
        "group": TEXT,
        "topic": TEXT,
        "queue_id": INT,
        "offset": LONG,
        "first": LONG,
        "end": LONG,
        "lag": LONG,
        "gone": LONG,
    }
)

Row = dict[str, Any]


def write_tables(folder: Path, stores: Sequence[StoreResult]) -> list[Path]:
    """The files. InvalidOption: the folder cannot be written."""
    tables: dict[str, tuple[pa.Schema, Callable[[StoreResult], Iterable[Row]]]] = {
        "findings": (FINDINGS, lambda seen: (as_row(each) for each in seen.findings.ordered())),
        "counts": (COUNTS, _counts),
        "queues": (QUEUES, lambda seen: (asdict(row) for row in seen.queue_rows())),
        "lag": (LAG, lambda seen: ({**asdict(lag), "lag": lag.lag, "gone": lag.gone} for lag in seen.lags)),
    }
    written = []
    for name, (schema, rows_of) in tables.items():
        rows = [{"store": seen.store.name, **row} for seen in stores for row in rows_of(seen)]
        path = folder / f"{name}.parquet"
        _write(path, pa.Table.from_pylist(rows, schema))
        written.append(path)
    return written


def _write(path: Path, table: pa.Table) -> None:
    hidden = path.with_name(f".{path.name}.writing")
    try:
        pq.write_table(table, hidden, compression="zstd")
        os.replace(hidden, path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise InvalidOption(f"--report: {path} cannot be written: {error}") from None


def _counts(seen: StoreResult) -> Iterable[Row]:
    """One row of each name, and one of all those that were not kept."""
    tallies = seen.counts
    yield from _tally("topic", tallies.topics(), ("topic",))
    yield from _tally("tag", tallies.tags, ("topic", "tag"))
    yield from _tally("host", tallies.hosts, ("host",))
    for row in _tally("hour", tallies.hours, ("hour",)):
        yield {**row, "hour": row["hour"] * HOUR_MS if row.get("hour") is not None else None}


def _tally(by: str, tally: TopCounts, names: tuple[str, ...]) -> Iterable[Row]:
    for key, (messages, size) in sorted(tally.rows.items()):
        yield {"by": by, **dict(zip(names, key, strict=True)), "messages": messages, "bytes": size}
    if tally.rest[0]:
        yield {"by": by, "messages": tally.rest[0], "bytes": tally.rest[1]}
