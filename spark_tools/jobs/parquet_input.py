"""Input of an import: an export with its manifest, or other Parquet files with a column `body`.

In the driver, `parquet_input` reads only footers. It groups files into FileRanges, each read as one, and
FileRanges into chains, which must be sent in order because they have rows of the same queue. In the worker,
`batches` reads rows from any row on, in queue order: files of a FileRange one after another if their keys are
in order, otherwise sorted in memory. One thread.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.export_manifest import NAME, ExportManifest
from firearrow.spark_tools.arrow.message_columns import MESSAGE_COLUMNS
from firearrow.spark_tools.arrow.parquet_writer import NO_VALUE
from firearrow.spark_tools.base.errors import InvalidOption, SparkToolsError
from firearrow.spark_tools.base.source import QueueRange

FILES_MAX = 1_000_000
TOPICS_MAX = 100_000
TOPIC_ROWS = 1 << 20
ROWS = "rows"
"""Stands for the broker name in the QueueRange of a FileRange."""
OF_FOLDERS = {"topic": pa.string(), "tags": pa.string(), "brokerName": pa.string(), "queueId": pa.int32()}
"""Columns that other writers store in folder names instead of files."""


class InvalidFiles(SparkToolsError):
    """Files that are not Parquet, or cannot be turned into messages."""


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """A file. `constants`: columns from its folder names."""

    path: str
    rows: int
    columns: tuple[str, ...]
    constants: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileRange:
    name: str
    files: tuple[ParquetRows, ...]
    bytes: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def part(self) -> QueueRange:
        """For plan and progress: a FileRange is a queue whose offsets are its rows."""
        return QueueRange(MessageQueue(self.name, ROWS, 0), 0, self.rows, self.bytes)


@dataclass(frozen=True, slots=True)
class ParquetInput:
    """`queues`: the source queues of the rows, if a manifest has them."""

    source: str
    chains: tuple[tuple[FileRange, ...], ...]
    schemas: tuple[pa.Schema, ...]
    queues: tuple[MessageQueue, ...] = ()
    packed: bool = False
    """Bodies are as stored: some compressed, see the column sysFlag."""

    @property
    def file_ranges(self) -> list[FileRange]:
        return [file_range for chain in self.chains for file_range in chain]


def parquet_input(root: Path, *, contents: bool, ordered: bool) -> ParquetInput:
    """Read a file or a folder. `contents`: check every byte against the manifest. InvalidManifest,
    InvalidFiles."""
    if (root / NAME).exists():
        return _exported(root, ExportManifest.read(root), contents, ordered)
    if (root / "_checkpoint").exists():
        ExportManifest.read(root)  # states that the export has not finished
    if contents:
        raise InvalidOption(f"--check-files: {root} has no {NAME} to check files by")
    paths = (
        [root] if root.is_file() else sorted(path for path in root.rglob("*.parquet") if _shown(root, path))
    )
    if not paths:
        raise InvalidFiles(f"{root}: no file or folder with .parquet files in it")
    if len(paths) > FILES_MAX:
        raise InvalidFiles(f"{root}: more than {FILES_MAX} files; import its folders one by one")
    schemas: dict[pa.Schema, None] = {}
    file_ranges = [
        FileRange(
            path.relative_to(root).as_posix() if path != root else path.name, (file,), path.stat().st_size
        )
        for path, file in ((path, _file(path, root, schemas)) for path in paths)
    ]
    chains = (tuple(file_ranges),) if ordered else tuple((file_range,) for file_range in file_ranges)
    return ParquetInput(str(root), chains, tuple(schemas))


def _exported(folder: Path, manifest: ExportManifest, contents: bool, ordered: bool) -> ParquetInput:
    manifest.check_files(folder, contents=contents)
    schemas: dict[pa.Schema, None] = {}
    files: dict[int, list[tuple[ParquetRows, int]]] = {}
    for each in manifest.files:
        found = _file(folder / each.path, folder, schemas)
        if found.rows != each.rows:
            raise InvalidFiles(f"{each.path}: {found.rows} rows, the manifest has {each.rows}")
        files.setdefault(each.part, []).append((found, each.bytes))
    file_ranges = {
        part: FileRange(f"part-{part:06}", tuple(file for file, _ in group), sum(size for _, size in group))
        for part, group in files.items()
    }
    queues = [(MessageQueue(each.topic, each.broker, each.queue), each.part) for each in manifest.ranges]
    chains = (
        _chained(file_ranges, queues)
        if ordered
        else tuple((file_range,) for file_range in file_ranges.values())
    )
    packed = manifest.options.get("open_bodies") in (False, "False")  # text in earlier versions
    return ParquetInput(
        str(folder), chains, tuple(schemas), tuple(sorted({queue for queue, _ in queues})), packed
    )


def _chained(
    file_ranges: Mapping[int, FileRange], queues: Sequence[tuple[MessageQueue, int]]
) -> tuple[tuple[FileRange, ...], ...]:
    """Chains of parts that share queues, in part order, which is the order of offsets."""
    leader = {part: part for part in file_ranges}

    def lead(part: int) -> int:
        while leader[part] != part:
            leader[part] = part = leader[leader[part]]
        return part

    first: dict[MessageQueue, int] = {}
    for queue, part in queues:
        if part in file_ranges:
            one, other = lead(first.setdefault(queue, part)), lead(part)
            leader[max(one, other)] = min(one, other)
    chains: dict[int, list[FileRange]] = {}
    for part in sorted(file_ranges):
        chains.setdefault(lead(part), []).append(file_ranges[part])
    return tuple(tuple(chain) for chain in chains.values())


def _file(path: Path, root: Path, schemas: dict[pa.Schema, None]) -> ParquetRows:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (OSError, pa.ArrowException) as fault:
        raise InvalidFiles(f"{path}: is not a readable Parquet file ({fault})") from fault
    known = [schema.field(name) for name in schema.names if name in MESSAGE_COLUMNS]
    constants = _of_folders(path, root, {each.name for each in known})
    folder_fields = [pa.field(name, OF_FOLDERS[name]) for name in constants]
    schemas.setdefault(pa.schema([*known, *folder_fields]))
    return ParquetRows(str(path), rows, tuple(each.name for each in known), constants)


def queues_in(found: ParquetInput) -> set[MessageQueue]:
    """The topics in the rows, each with its highest queue. Reads these two columns of all files."""
    highest: dict[str, int] = {}
    for file in (file for file_range in found.file_ranges for file in file_range.files):
        with pq.ParquetFile(file.path) as opened:
            names = [name for name in ("topic", "queueId") if name in file.columns]
            for batch in opened.iter_batches(TOPIC_ROWS, columns=names):
                rows = {name: batch.column(name) for name in names} | dict(file.constants)
                for topic, queue_id in _highest(rows):
                    highest[topic] = max(highest.get(topic, 0), queue_id)
        if len(highest) > TOPICS_MAX:
            raise InvalidFiles(
                f"{found.source}: more than {TOPICS_MAX} topics; is column topic the right one?"
            )
    return {MessageQueue(topic, ROWS, queue_id) for topic, queue_id in highest.items()}


def topic_rows(file: ParquetRows, otherwise: str) -> Counter[str]:
    """The number of rows of each topic in a file; `otherwise`: of rows that name none. Reads that column."""
    found: Counter[str] = Counter()
    if "topic" not in file.columns:
        return Counter({str(file.constants.get("topic") or otherwise): file.rows})
    with pq.ParquetFile(file.path) as opened:
        for batch in opened.iter_batches(TOPIC_ROWS, columns=["topic"]):
            for each in batch.column("topic").value_counts().to_pylist():
                found[each["values"] or otherwise] += each["counts"]
    return found


def _highest(rows: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Each topic of a batch and its highest queue id, each from a column or one value for all rows."""
    topics, ids = rows.get("topic"), rows.get("queueId", 0)
    if not isinstance(topics, pa.Array):
        top = pc.max(ids).as_py() if isinstance(ids, pa.Array) else ids
        return [(topics, top or 0)] if topics else []
    if not isinstance(ids, pa.Array):
        return [(topic, ids or 0) for topic in topics.unique().to_pylist() if topic]
    grouped = pa.table({"topic": topics, "id": ids}).group_by("topic").aggregate([("id", "max")])
    return [(row["topic"], row["id_max"] or 0) for row in grouped.to_pylist() if row["topic"]]


def _of_folders(path: Path, root: Path, there: set[str]) -> dict[str, Any]:
    """Columns in folder names: `topic=Orders/queueId=3/x.parquet`."""
    found: dict[str, Any] = {}
    for step in path.relative_to(root).parent.parts if path != root else ():
        name, equals, value = step.partition("=")
        if equals and name in OF_FOLDERS and name not in there:
            text = None if value == NO_VALUE else unquote(value)
            if OF_FOLDERS[name] == pa.int32() and text is not None:
                if not (text.isascii() and text.isdecimal() and len(text) < 10):
                    raise InvalidFiles(f"{path}: {step} is not a valid {name}; rename the folder")
                found[name] = int(text)
            else:
                found[name] = text
    return found


def _shown(root: Path, path: Path) -> bool:
    """Skip hidden files and folders: another program is writing them."""
    return not any(step.startswith((".", "_")) for step in path.relative_to(root).parts)


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
        names = list(file.columns)
        for batch in opened.iter_batches(_rows_at_a_time(opened.metadata), groups, names):
            left = batch.slice(min(skipped, len(batch)))
            skipped -= len(batch) - len(left)
            if len(left):
                yield _with_constants(left, file.constants)


def _groups_from(metadata: pq.FileMetaData, start: int) -> tuple[list[int], int]:
    """Row groups from the one with row `start` on, and how many of its rows come before."""
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
    """The files in ascending order of their keys; None: their key ranges overlap."""
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
