"""Rows of Parquet files, in the worker: batch by batch, from any row on, in the order of their queues.

Files of one part are read one behind the other if their keys follow each other so; if not, the part is sorted in
memory. One thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from firearrow.spark_tools.jobs.imported import OF_FOLDERS, FileRange, InvalidFiles, ParquetRows

BATCH_BYTES = 8 << 20
BATCH_ROWS = 32768
BUFFER_BYTES = 1 << 20
KEY = ("topic", "brokerName", "queueId", "queueOffset")


def batches(file_range: FileRange, start: int) -> Iterator[pa.RecordBatch]:
    """All rows from `start` on. InvalidFiles: a file cannot be read."""
    try:
        if len(file_range.files) == 1:
            yield from _streamed(file_range.files[0], start)
            return
        in_order = _in_order(file_range.files)
        if in_order is None:
            table = pa.concat_tables([_table(file) for file in file_range.files])
            yield from _cut(table.sort_by([(name, "ascending") for name in KEY]), start)
            return
        for file in in_order:
            if start < file.rows:
                yield from _streamed(file, start)
            start = max(0, start - file.rows)
    except (OSError, pa.ArrowException) as fault:
        raise InvalidFiles(f"{file_range.name}: cannot be read: {fault}") from fault


def _streamed(file: ParquetRows, start: int) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file.path, buffer_size=BUFFER_BYTES) as opened:
        groups, skipped = _groups_from(opened.metadata, start)
        wanted = list(file.columns)
        for batch in opened.iter_batches(_rows_at_a_time(opened.metadata), groups, wanted):
            left = batch.slice(min(skipped, len(batch)))
            skipped -= len(batch) - len(left)
            if len(left):
                yield _with_constants(left, file.constants)


def _groups_from(metadata: pq.FileMetaData, start: int) -> tuple[list[int], int]:
    """Row groups from the one with row `start` on, and how many rows of it lie before."""
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if start < rows:
            return list(range(number, metadata.num_row_groups)), start
        start -= rows
    return [], 0


def _rows_at_a_time(metadata: pq.FileMetaData) -> int:
    size = sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
    return max(1, min(BATCH_ROWS, BATCH_BYTES * max(1, int(metadata.num_rows)) // max(1, size)))


def _with_constants(batch: pa.RecordBatch, constants: Mapping[str, Any]) -> pa.RecordBatch:
    for name, value in constants.items():
        column = pa.repeat(pa.scalar(value, OF_FOLDERS[name]), len(batch))
        batch = batch.append_column(name, column)
    return batch


def _in_order(files: Sequence[ParquetRows]) -> list[ParquetRows] | None:
    """The files so that their keys ascend from one to the next; None: they lie across each other."""
    if not all(set(KEY) <= {*file.columns, *file.constants} for file in files):
        return list(files)
    spans = sorted(((*_ends(file), number) for number, file in enumerate(files) if file.rows))
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        return None
    return [files[number] for *_, number in spans]


def _ends(file: ParquetRows) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Keys of the first and of the last row."""
    metadata = pq.read_metadata(file.path)
    first = _keys(file, 0)
    last = _keys(file, metadata.num_row_groups - 1)
    return first[0], last[-1]


def _keys(file: ParquetRows, group: int) -> list[tuple[Any, ...]]:
    with pq.ParquetFile(file.path) as opened:
        table = opened.read_row_group(group, [name for name in KEY if name in file.columns])
    ends = table.take([0, len(table) - 1]).to_pylist()
    return [tuple((row | dict(file.constants))[name] for name in KEY) for row in ends]


def _table(file: ParquetRows) -> pa.Table:
    return pa.Table.from_batches(list(_streamed(file, 0)))


def _cut(table: pa.Table, start: int) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES * len(table) // max(1, table.nbytes)))
    yield from table.slice(start).to_batches(max_chunksize=rows)
