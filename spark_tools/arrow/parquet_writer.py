"""ParquetWriter: writes the Parquet files of one task, `folder/[key=value/…]name.parquet`.

Files have hidden names until `finish`, so a file with its final name is complete; a task that runs again
replaces the same files. Memory is limited by WAITING_BYTES_MAX, open files by WRITERS_MAX. One thread.
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
"""Limit of all unfinished row groups; beyond it the largest one is written."""
WRITERS_MAX = 64
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
OF_TIME = ("date", "hour")
"""Partitions computed from storeTimestamp, UTC."""
PARTITIONS = ("topic", "queueId", "brokerName", "tags", *OF_TIME)
DAY_US, HOUR_US = 86_400_000_000, 3_600_000_000
NO_TIME = -(1 << 62)
EPOCH_DAY = date(1970, 1, 1).toordinal()
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
VALUE_CHARS_MAX = 120
PAGE_BYTES, PAGE_ROWS = 256 << 10, 4096
"""A page ends after the chunk of PAGE_ROWS rows with which it reaches PAGE_BYTES: few pages and calls, low
overhead."""
NULLABLE = frozenset({*PROPERTY_OF, "storeTimestamp", "bornTimestamp"})
"""Columns that not every record has; readers need not look for nulls in the others."""
REPEATED = ("topic", "brokerName", "tags", "properties.key_value.key", "bornHost", "storeHost")
"""Strings with few values, for which a dictionary pays. Numbers that are nearly all equal are as small
without one."""
INDEXED_COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "storeTimestamp",
    "bornTimestamp",
    "tags",
    "keys",
    "physicalOffset",
)
"""Columns with statistics (minimum and maximum), by which readers skip row groups."""
HIDDEN_SUFFIX = ".writing"
SAFE = "-_.~!$+@ "


class ExportFailed(WriteFailed):
    """A file cannot be written; no incomplete file has its final name."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`path`: relative to the folder, with `/`. `crc32`: of the file's bytes, without the highest bit."""

    path: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of the files. Picklable. `columns`: of arrow/columns.py; `partition_by`: of PARTITIONS."""

    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    level: int | None = None

    def __post_init__(self) -> None:
        column_names(self.columns)
        for index, name in enumerate(self.partition_by):
            if name not in PARTITIONS:
                raise InvalidOption(f"--partition-by: unknown {name!r}; use {', '.join(PARTITIONS)}, or none")
            if name in self.partition_by[:index]:
                raise InvalidOption(f"--partition-by: {name} is named twice; name it once")
        if self.compression not in COMPRESSIONS:
            raise InvalidOption(f"--compression: unknown {self.compression!r}; use {', '.join(COMPRESSIONS)}")
        if self.level is not None and (self.compression != "zstd" or not 1 <= self.level <= 22):
            raise InvalidOption("--level: only for zstd, from 1 to 22")

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that a batch must have: those to write, and those that determine its partition."""
        of_partition = ("storeTimestamp" if name in OF_TIME else name for name in self.partition_by)
        return tuple(dict.fromkeys((*self.columns, *of_partition)))

    def open(self, path: Path) -> pq.ParquetWriter:
        fields = [field.with_nullable(field.name in NULLABLE) for field in schema(self.columns)]
        return pq.ParquetWriter(
            path,
            pa.schema(fields),
            compression=self.compression,
            compression_level=self.level,
            use_dictionary=list(REPEATED),
            write_statistics=list(INDEXED_COLUMNS),
            store_schema=True,
            data_page_size=PAGE_BYTES,
            write_batch_size=PAGE_ROWS,
        )


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written; `waiting` becomes its next row group."""

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
    """Writes files named `name` in the folder of each partition. Without `finish`, they are deleted at the
    exit."""

    def __init__(self, folder: Path, name: str, layout: Layout, *, writers_max: int = WRITERS_MAX) -> None:
        self._folder, self._name, self._layout = folder, name, layout
        self._writers_max = writers_max
        self._open: dict[tuple[str, ...], _OpenFile] = {}
        self._closed: list[_OpenFile] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch with the columns of `layout.read`. ExportFailed."""
        with self._errors_as_export_failed():
            for values, rows in partitioned(batch, self._layout.partition_by):
                self._add(values, rows.select(list(self._layout.columns)))

    def finish(self) -> list[WrittenFile]:
        """Close all files and give them their final names. ExportFailed."""
        with self._errors_as_export_failed():
            for values in list(self._open):
                self._close(values)
            for each in self._closed:
                each.hidden.replace(each.final)
            return [self._written(each) for each in sorted(self._closed, key=lambda each: str(each.final))]

    def discard(self) -> None:
        """Delete all files that do not have their final name."""
        unfinished = [*self._closed, *self._open.values()]
        self._closed, self._open = [], {}
        for each in unfinished:
            try:
                if each.writer is not None:
                    each.writer.close()
            except (OSError, pa.ArrowException):
                continue  # the error that ended the export is reported already, and this file is deleted
            finally:
                each.hidden.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _add(self, values: tuple[str, ...], batch: pa.RecordBatch) -> None:
        file = self._file_of(values)
        file.rows += len(batch)
        file.waiting.append(batch)
        file.waiting_bytes += batch.nbytes
        if file.waiting_bytes >= ROW_GROUP_BYTES:
            file.flush()
        elif sum(each.waiting_bytes for each in self._open.values()) > WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    def _file_of(self, values: tuple[str, ...]) -> _OpenFile:
        """The open file of a partition; opens one, and closes the least recently used one if too many are
        open."""
        found = self._open.pop(values, None)
        if found is None:
            if len(self._open) >= self._writers_max:
                self._close(next(iter(self._open)))
            found = self._create(values)
        self._open[values] = found
        return found

    def _create(self, values: tuple[str, ...]) -> _OpenFile:
        number = self._numbers[values] = self._numbers.get(values, -1) + 1
        folder = self._folder.joinpath(
            *(f"{key}={value}" for key, value in zip(self._layout.partition_by, values, strict=True))
        )
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._name}{f'-{number}' if number else ''}.parquet"
        hidden = folder / f".{name}.{os.getpid()}{HIDDEN_SUFFIX}"
        file = _OpenFile(folder / name, hidden, None)
        self._open[values] = file
        file.writer = self._layout.open(hidden)
        return file

    def _close(self, values: tuple[str, ...]) -> None:
        file = self._open[values]
        file.flush()
        if file.writer is not None:
            file.writer.close()
        file.writer = None
        self._closed.append(self._open.pop(values))

    def _written(self, each: _OpenFile) -> WrittenFile:
        size = each.final.stat().st_size
        return WrittenFile(
            each.final.relative_to(self._folder).as_posix(), each.rows, size, file_crc(each.final)
        )

    @contextmanager
    def _errors_as_export_failed(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise ExportFailed(disk_errors.disk_error_text(self._folder, fault)) from fault


def partitioned(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    """The rows of each partition in their order, with the partition's values as folder names."""
    if not by:
        yield (), batch
        return
    codes = np.zeros(len(batch), dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    for name in by:
        column, folders = _folders(batch, name)
        codes = codes * len(folders) + column
        names = [(*outer, folder) for outer in names for folder in folders]
    found = np.unique(codes)
    for code in found:
        rows = batch if len(found) == 1 else batch.filter(pa.array(codes == code))
        yield names[code], rows


def _folders(batch: pa.RecordBatch, name: str) -> tuple[np.ndarray, list[str]]:
    """A code for each row, and the folder value of each code."""
    if name in OF_TIME:
        return _folders_of_time(batch.column("storeTimestamp"), name)
    coded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
    texts = coded.dictionary.to_pylist()
    return coded.indices.to_numpy(), [
        NO_VALUE if text in (None, "") else folder_value(str(text)) for text in texts
    ]


def _folders_of_time(column: pa.Array, name: str) -> tuple[np.ndarray, list[str]]:
    """Computed with integers, because time zones need a database that not every machine has."""
    micros = pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy()
    found, codes = np.unique(micros // (DAY_US if name == "date" else HOUR_US), return_inverse=True)
    none = NO_TIME // (DAY_US if name == "date" else HOUR_US)
    if name == "date":
        texts = [str(date.fromordinal(EPOCH_DAY + int(day))) if day != none else NO_VALUE for day in found]
    else:
        texts = [f"{hour % 24:02}" if hour != none else NO_VALUE for hour in found]
    return codes, texts


def folder_value(text: str) -> str:
    """A value in a folder name as Spark and Hive write it; a long one is cut and gets a digest to stay
    unique."""
    named = quote(text, safe=SAFE)
    if named in (".", ".."):
        return named.replace(".", "%2E")
    if len(named) <= VALUE_CHARS_MAX:
        return named
    return f"{quote(text[: VALUE_CHARS_MAX // 12], safe=SAFE)}~{sha256(text.encode()).hexdigest()[:16]}"


assert set(PARTITIONS) - set(OF_TIME) <= set(COLUMNS)
