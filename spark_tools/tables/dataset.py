"""A topic as a PyArrow dataset: of the files of stores, or of live brokers. Any thread.

DuckDB, Polars and pandas scan it with the columns and the filter that a query needs. What a filter excludes is not read
where the offsets, times, tags or keys show it; the rest is filtered by Arrow. Each scan plans again, so it has what is
stored by then.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from firearrow.spark_tools.arrow import columns as message_columns
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import OnDataLoss, Source, SourceReader
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.data_loss import FailFast
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.plan.source import source_of
from firearrow.spark_tools.plan.splits import InputSplit
from firearrow.spark_tools.tables.predicates import columns_in, pushdown_of

SIZES_ARE_OFF = 1.02
"""Margin for sizes, which are often estimated as shares of larger ranges."""
NAME_SERVERS = re.compile(r"[^/\\=;]+:\d{1,5}(;[^/\\=;]+:\d{1,5})*;?")
OPTIONS = {"since": "startingTimestamp", "until": "endingTimestamp"}
"""Names of options here and in Spark."""
DEFAULTS = {"startingOffsetsByTimestampStrategy": "latest"}
"""A queue without a message since a time has none of the rows that were asked for; that is not an error."""
CHEAPEST = "queueOffset"
"""What is read of each message if only their number is asked for."""

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""The folder of a store, several of them, or `HOST:PORT` of name servers, separated by `;`."""
When = str | int | datetime
"""ISO 8601, ms since 1970, or a time; UTC if it names no zone."""


def batches_of(
    reader: SourceReader,
    split: InputSplit,
    message_filter: MessageFilter,
    names: tuple[str, ...],
    options: SourceOptions,
    on_data_loss: OnDataLoss,
) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges that match, with the columns `names`. `on_data_loss` gets what is missing."""
    message_filter = message_filter.of_columns(names)
    for part in split:
        bytes_max = even(part.size, options.batch_bytes)
        for spans in reader.read(part, message_filter, on_data_loss, bytes_max=bytes_max):
            yield from message_columns.record_batches(
                spans,
                names,
                part.queue.broker_name,
                open_bodies=options.open_bodies,
                on_data_loss=on_data_loss,
                count_max=options.batch_rows,
                bytes_max=bytes_max,
            )


def even(size: int, about: int) -> int:
    """Batch size that divides a range of `size` evenly: a small last batch costs as much as a full one."""
    batches = max(1, round(size / about))
    return max(about, math.ceil(size / batches * SIZES_ARE_OFF))


@dataclass(frozen=True, slots=True)
class LogScan:
    """One read, planned: its splits in the order in which they are read."""

    source: Source
    options: SourceOptions
    names: tuple[str, ...]
    splits: Sequence[InputSplit]

    @property
    def schema(self) -> pa.Schema:
        return message_columns.schema(self.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """DataLoss at the first missing range, unless `failOnDataLoss` is false."""
        message_filter = self.options.pushdown.message_filter(self.options.message_filter())
        if message_filter is None or not self.splits:
            return
        lost = FailFast(self.options.fail_on_loss)
        with self.source.open() as reader:
            for split in self.splits:
                yield from batches_of(reader, split, message_filter, self.names, self.options, lost)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


class RocketMQDataset(pads.Dataset):  # type: ignore[misc]  # PyArrow has no types
    """`options`: what was asked for; `source`: where it is read."""

    def __init__(self, source: Source, options: SourceOptions) -> None:
        self.source = source
        self.options = options
        self.names = message_columns.column_names(options.columns or message_columns.ALL, options.properties)

    @property
    def schema(self) -> pa.Schema:
        return message_columns.schema(self.names)

    def scan(self, names: Sequence[str] | None = None, pushdown: Pushdown | None = None) -> LogScan:
        """Plan a read of these columns. TopicNotFound, InvalidOption, DataLoss."""
        asked = self.names if names is None else tuple(names) or (CHEAPEST,)
        options = self.options if pushdown is None else replace(self.options, pushdown=pushdown)
        return LogScan(self.source, options, asked, BatchPlan(self.source, options).parts())

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pads.Expression] | None = None,
        filter: pads.Expression | None = None,
        **more: Any,  # noqa: ANN401 (passed to PyArrow)
    ) -> pads.Scanner:
        """As `pyarrow.dataset.Dataset.scanner`."""
        needed: Iterable[str] = self.names
        if columns is not None and not isinstance(columns, Mapping):
            needed = [*columns, *(() if filter is None else columns_in(filter, self.names))]
        pushdown = None if filter is None else pushdown_of(filter)
        scan = self.scan([name for name in self.names if name in set(needed)], pushdown)
        return pads.Scanner.from_batches(
            scan.batches(),
            schema=scan.schema,
            columns=list(columns) if columns is not None and not isinstance(columns, Mapping) else columns,
            filter=filter,
            **more,
        )

    def __str__(self) -> str:
        return f"RocketMQDataset({self.source}: {', '.join(self.options.topic) or 'all topics'})"

    __repr__ = __str__


def dataset(
    source: Where,
    topic: str | Sequence[str] | None = None,
    *,
    since: When | None = None,
    until: When | None = None,
    keys: str | Sequence[str] = (),
    tags: str | Sequence[str] = (),
    sql: str | None = None,
    columns: Sequence[str] = (),
    **options: object,
) -> RocketMQDataset:
    """A topic, or several, as a dataset. `source`: the folder of a store (or several), or `HOST:PORT` of a name server.

    `since`, `until`: store times. `keys`, `tags`: any of them. `sql`: an SQL92 expression over properties. `options`:
    those of Spark's source, such as `failOnDataLoss=False` (docs/SPARK_REFERENCE.md). InvalidOption.
    """
    own = {"since": since, "until": until, "keys": keys, "tags": tags, "sql": sql, "columns": columns}
    return dataset_of(source, topic, BATCH, own | options)


def dataset_of(
    source: Where, topic: str | Sequence[str] | None, use: str, options: Mapping[str, object]
) -> RocketMQDataset:
    """`options`: those of `dataset`. `use`: BATCH or STREAM. InvalidOption."""
    given = _where(source) | _texts(DEFAULTS | {"topic": topic} | dict(options))
    found = SourceOptions.of(given, use)
    return RocketMQDataset(source_of(found, given), found)


def read(source: Where, topic: str | Sequence[str] | None = None, **options: Any) -> pa.RecordBatchReader:  # noqa: ANN401
    """The messages as Arrow batches, one read of them; arguments as for `dataset`. TopicNotFound, InvalidOption,
    DataLoss."""
    return dataset(source, topic, **options).scan().reader()


def to_pandas(source: Where, topic: str | Sequence[str] | None = None, **options: Any) -> Any:  # noqa: ANN401 (a DataFrame)
    """The messages as a DataFrame of pandas; arguments as for `dataset`."""
    return read(source, topic, **options).read_pandas()


def _where(source: Where) -> dict[str, str]:
    """InvalidOption: neither a folder nor a name server."""
    if isinstance(source, str) and NAME_SERVERS.fullmatch(source) and not Path(source).exists():
        return {"nameServer": source}
    folders = [source] if isinstance(source, str | os.PathLike) else list(source)
    texts = [os.fspath(each) for each in folders]
    for text in texts:
        if not Path(text.rpartition("=")[2]).is_dir() and not Path(text).is_dir():
            raise InvalidOption(f"{text}: neither a folder nor HOST:PORT of a name server")
    return {"path": json.dumps(texts)}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark would get them; without those that are None or empty. InvalidOption."""
    found = {}
    for name, value in values.items():
        if value is None or value in ("", (), []):
            continue
        match value:
            case bool():
                text = str(value).lower()
            case datetime():
                text = value.isoformat()
            case dict():
                text = json.dumps(value)
            case list() | tuple() | frozenset() | set():
                text = _joined(name, list(map(str, value)))
            case _:
                text = str(value)
        found[OPTIONS.get(name, name)] = text
    return found


def _joined(name: str, values: Sequence[str]) -> str:
    separator = "||" if name == "tags" else ","
    for each in values:
        if separator in each:
            raise InvalidOption(f"{name}: {each!r} contains {separator}, which separates them")
    return separator.join(values)
