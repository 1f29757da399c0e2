"""Parquet files of one task: batches go to `folder/[key=value/…]name.parquet`, under a hidden name until `finish`.

Nothing has its final name before all of it is written; a task done again replaces the same files. Memory is bounded by
what waits for its row group, files by WRITERS_MAX open ones. One thread. Knows no session.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firearrow.spark_tools.arrow.columns import COLUMNS, PROPERTY_OF, column_names, schema
from firearrow.spark_tools.arrow.export_manifest import file_crc
from firearrow.spark_tools.base import disk_errors
from firearrow.spark_tools.base.errors import InvalidOption, WriteFailed

ROW_GROUP_BYTES = 32 << 20
WAITING_BYTES_MAX = 128 << 20
"""Of all row groups that are gathered; beyond it the largest is written as it is."""
WRITERS_MAX = 64
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
OF_TIME = ("date", "hour")
"""Partitions made of storeTimestamp, UTC."""
PARTITIONS = ("topic", "queueId", "brokerName", "tags", *OF_TIME)
DAY_US, HOUR_US = 86_400_000_000, 3_600_000_000
NO_TIME = -(1 << 62)
EPOCH_DAY = date(1970, 1, 1).toordinal()
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
VALUE_CHARS_MAX = 120
PAGE_BYTES, PAGE_ROWS = 256 << 10, 4096
"""A page is closed by the first `PAGE_ROWS` rows with which it has so many bytes: what belongs to a page and to a call
is paid seldom."""
NULLABLE = frozenset({*PROPERTY_OF, "storeTimestamp", "bornTimestamp"})
"""Columns that not every record has; nobody need look for nulls in others."""
REPEATED = ("topic", "brokerName", "tags", "properties.key_value.key", "bornHost", "storeHost")
"""Texts with few values: a dictionary is worth it. Numbers of which nearly all are the same are as small without."""
INDEXED_COLUMNS = (
    "topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "physicalOffset",
)  # fmt: skip
"""By their least and greatest value readers leave out row groups."""
HIDDEN_END = ".writing"
SAFE = "-_.~!$+@ "


class ExportFailed(WriteFailed):
    """A file cannot be written; nothing of it is left under its final name."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`path` below the folder, with `/`. `crc32` of the file's bytes without the highest bit."""

    path: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What is written and how: picklable. Columns as of firearrow.spark_tools.arrow.columns, partitions one of PARTITIONS."""

    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    level: int | None = None

    def __post_init__(self) -> None:
        column_names(self.columns)
        for index, name in enumerate(self.partition_by):
            if name not in PARTITIONS:
                raise InvalidOption(f"--partition-by: {name!r}; there are {', '.join(PARTITIONS)} and none")
            if name in self.partition_by[:index]:
                raise InvalidOption(f"--partition-by: {name} is named twice; name it once")
        if self.compression not in COMPRESSIONS:
            raise InvalidOption(f"--compression: {self.compression!r}; there are {', '.join(COMPRESSIONS)}")
        if self.level is not None and (self.compression != "zstd" or not 1 <= self.level <= 22):
            raise InvalidOption("--level: 1 to 22, and for zstd only")

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that a batch must have: those to write, and those that tell its partition."""
        of_partition = ("storeTimestamp" if name in OF_TIME else name for name in self.partition_by)
        return tuple(dict.fromkeys((*self.columns, *of_partition)))

    def open(self, path: Path) -> pq.ParquetWriter:
        fields = [field.with_nullable(field.name in NULLABLE) for field in schema(self.columns)]
        return pq.ParquetWriter(
            path, pa.schema(fields), compression=self.compression, compression_level=self.level,
            use_dictionary=list(REPEATED), write_statistics=list(INDEXED_COLUMNS), store_schema=True, data_page_size=PAGE_BYTES,
            write_batch_size=PAGE_ROWS,
        )  # fmt: skip


@dataclass(slots=True)
class _OpenFile:
    """One file while it is written; `waiting` becomes its next row group."""

    final: Path
    hidden: Path
    writer: pq.ParquetWriter | None
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0

    def flush(self) -> None:
        if self.waiting and self.writer is not None:
            columns = pa.Table.from_batches(self.waiting).columns
            self.waiting, self.waiting_bytes = [], 0
            table = pa.Table.from_arrays(columns, schema=self.writer.schema)
            self.writer.write_table(table, row_group_size=max(1, len(table)))


class ParquetWriter:
    """The files of one task, named `name` in each partition's folder. Leave it by `finish`, else all of it vanishes."""

    def __init__(self, folder: Path, name: str, layout: Layout, *, writers_max: int = WRITERS_MAX) -> None:
        self._folder, self._name, self._layout = folder, name, layout
        self._writers_max = writers_max
        self._open: dict[tuple[str, ...], _OpenFile] = {}
        self._closed: list[_OpenFile] = []
        self._last_used: dict[tuple[str, ...], int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """A batch with the columns of `layout.read`. ExportFailed."""
        with self._told():
            for values, rows in partitioned(batch, self._layout.partition_by):
                self._add(values, rows.select(list(self._layout.columns)))

    def finish(self) -> list[WrittenFile]:
        """Close all and give them their names. ExportFailed."""
        with self._told():
            for values in list(self._open):
                self._close(values)
            for each in self._closed:
                each.hidden.replace(each.final)
            return [self._written(each) for each in sorted(self._closed, key=lambda each: str(each.final))]

    def discard(self) -> None:
        """Take away what has no final name."""
        growing = [*self._closed, *self._open.values()]
        self._closed, self._open = [], {}
        for each in growing:
            try:
                if each.writer is not None:
                    each.writer.close()
            except (OSError, pa.ArrowException):
                continue  # what ended the export is told already, and this file is deleted
            finally:
                each.hidden.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _add(self, values: tuple[str, ...], batch: pa.RecordBatch) -> None:
        growing = self._growing(values)
        growing.rows += len(batch)
        growing.waiting.append(batch)
        growing.waiting_bytes += batch.nbytes
        if growing.waiting_bytes >= ROW_GROUP_BYTES:
            growing.flush()
        elif sum(each.waiting_bytes for each in self._open.values()) > WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    def _growing(self, values: tuple[str, ...]) -> _OpenFile:
        """The open file of a partition; the one that was not asked for longest makes room."""
        found = self._open.pop(values, None)
        if found is None:
            if len(self._open) >= self._writers_max:
                self._close(next(iter(self._open)))
            found = self._begin(values)
        self._open[values] = found
        return found

    def _begin(self, values: tuple[str, ...]) -> _OpenFile:
        last_use = self._last_used[values] = self._last_used.get(values, -1) + 1
        folder = self._folder.joinpath(
            *(f"{key}={value}" for key, value in zip(self._layout.partition_by, values, strict=True))
        )
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._name}{f'-{last_use}' if last_use else ''}.parquet"
        hidden = folder / f".{name}.{os.getpid()}{HIDDEN_END}"
        growing = _OpenFile(folder / name, hidden, None)
        self._open[values] = growing
        growing.writer = self._layout.open(hidden)
        return growing

    def _close(self, values: tuple[str, ...]) -> None:
        growing = self._open[values]
        growing.flush()
        if growing.writer is not None:
            growing.writer.close()
        growing.writer = None
        self._closed.append(self._open.pop(values))

    def _written(self, each: _OpenFile) -> WrittenFile:
        size = each.final.stat().st_size
        return WrittenFile(
            each.final.relative_to(self._folder).as_posix(), each.rows, size, file_crc(each.final)
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise ExportFailed(disk_errors.disk_error_text(self._folder, fault)) from fault


def partitioned(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    """The rows of each partition, in their order, and its values as names of folders."""
    if not by:
        yield (), batch
        return
    codes = np.zeros(len(batch), dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    for name in by:
        column, texts = _folders(batch, name)
        codes = codes * len(texts) + column
        names = [(*before, text) for before in names for text in texts]
    found = np.unique(codes)
    for code in found:
        rows = batch if len(found) == 1 else batch.filter(pa.array(codes == code))
        yield names[code], rows


def _folders(batch: pa.RecordBatch, name: str) -> tuple[np.ndarray, list[str]]:
    """A number for each row, and the folder's value of each number."""
    if name in OF_TIME:
        return _folders_of_time(batch.column("storeTimestamp"), name)
    coded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
    texts = coded.dictionary.to_pylist()
    return coded.indices.to_numpy(), [
        NO_VALUE if text in (None, "") else folder_value(str(text)) for text in texts
    ]


def _folders_of_time(column: pa.Array, name: str) -> tuple[np.ndarray, list[str]]:
    """By whole numbers, because time zones need a database that not every machine has."""
    micros = pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy()
    found, codes = np.unique(micros // (DAY_US if name == "date" else HOUR_US), return_inverse=True)
    none = NO_TIME // (DAY_US if name == "date" else HOUR_US)
    if name == "date":
        texts = [str(date.fromordinal(EPOCH_DAY + int(day))) if day != none else NO_VALUE for day in found]
    else:
        texts = [f"{hour % 24:02}" if hour != none else NO_VALUE for hour in found]
    return codes, texts


def folder_value(text: str) -> str:
    """As Spark and Hive write a value into a folder's name; a long one is cut, and a digest tells it apart."""
    named = quote(text, safe=SAFE)
    if named in (".", ".."):
        return named.replace(".", "%2E")
    if len(named) <= VALUE_CHARS_MAX:
        return named
    return f"{quote(text[: VALUE_CHARS_MAX // 12], safe=SAFE)}~{sha256(text.encode()).hexdigest()[:16]}"


assert set(PARTITIONS) - set(OF_TIME) <= set(COLUMNS)
