"""Files of a task: complete under their names or not there, every row once, in its partition, in order; bounded."""

import errno
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firearrow.spark_tools.arrow import parquet_writer
from firearrow.spark_tools.arrow.columns import schema
from firearrow.spark_tools.arrow.export_manifest import file_crc
from firearrow.spark_tools.arrow.parquet_writer import (
    NO_VALUE,
    PARTITIONS,
    ExportFailed,
    Layout,
    ParquetWriter,
    WrittenFile,
    folder_value,
    partitioned,
)
from firearrow.spark_tools.base.errors import InvalidOption

COLUMNS = ("topic", "queueOffset", "storeTimestamp", "tags", "body")
DAY_US = 86_400_000_000


def batch(
    start: int, count: int, topic: str = "T", tags: str | None = "t", time_us: int = 0, body: bytes = b"body"
) -> pa.RecordBatch:
    values = {
        "topic": [topic] * count,
        "queueOffset": range(start, start + count),
        "storeTimestamp": [time_us] * count,
        "tags": [tags] * count,
        "body": [body] * count,
    }
    arrays = [pa.array(list(values[field.name]), field.type) for field in schema(COLUMNS)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(COLUMNS))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write(folder: Path, layout: Layout, *batches: pa.RecordBatch, **more: int) -> list[WrittenFile]:
    with ParquetWriter(folder, "part-1", layout, **more) as part:
        for each in batches:
            part.write(each)
        return part.finish()


def test_what_was_written_is_read_in_order(tmp_path: Path) -> None:
    written = write(tmp_path, Layout(COLUMNS), batch(0, 10), batch(10, 5))
    path = tmp_path / "part-1.parquet"
    assert written == [WrittenFile("part-1.parquet", 15, path.stat().st_size, file_crc(path))]
    table = pq.read_table(path)
    assert [(field.name, field.type) for field in table.schema] == [
        (field.name, field.type) for field in schema(COLUMNS)
    ]
    assert [field.name for field in table.schema if field.nullable] == ["storeTimestamp", "tags"]
    assert table["queueOffset"].to_pylist() == list(range(15))
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_rows_lie_in_the_folder_of_their_topic_and_day(tmp_path: Path) -> None:
    rows = [
        batch(0, 3, "A"),
        batch(3, 2, "%RETRY%g", time_us=DAY_US),
        batch(5, 1, "A", time_us=-1),
        batch(6, 4, "A"),
    ]
    mixed = pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
    written = write(tmp_path, Layout(COLUMNS, ("topic", "date")), mixed)
    expected = {
        "topic=%25RETRY%25g/date=1970-01-02/part-1.parquet": [3, 4],
        "topic=A/date=1969-12-31/part-1.parquet": [5],
        "topic=A/date=1970-01-01/part-1.parquet": [0, 1, 2, 6, 7, 8, 9],
    }
    assert files(tmp_path) == sorted(expected) == [each.path for each in written]
    for path, offsets in expected.items():
        assert pq.ParquetFile(tmp_path / path).read()["queueOffset"].to_pylist() == offsets
    assert [each.rows for each in written] == [len(expected[each.path]) for each in written]


def test_every_row_is_in_one_partition_for_all_values() -> None:
    dice = random.Random(7)
    tags = [None, "", "a", "b/c", "..", "=", "ü" * 300]
    rows = [
        batch(number, 1, f"T{dice.randrange(3)}", dice.choice(tags), dice.randrange(-(10**15), 10**15))
        for number in range(500)
    ]
    whole = pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
    seen = []
    for (topic, tag, day, hour), part in partitioned(whole, ("topic", "tags", "date", "hour")):
        for row in part.to_pylist():
            when = row["storeTimestamp"].astimezone(UTC)
            assert (topic, day, hour) == (row["topic"], f"{when:%Y-%m-%d}", f"{when:%H}")
            assert tag == (folder_value(row["tags"]) if row["tags"] else NO_VALUE)
        assert part["queueOffset"].to_pylist() == sorted(part["queueOffset"].to_pylist())
        seen += part["queueOffset"].to_pylist()
    assert sorted(seen) == list(range(500))


@pytest.mark.parametrize("text", ["a", "a/b", "..", ".", "%RETRY%x", "a=b", "größe", "\x00", "a:b*c?"])
def test_a_folder_s_value_stays_within_and_can_be_read_back(text: str) -> None:
    value = folder_value(text)
    assert "/" not in value
    assert value not in (".", "..")
    assert unquote(value) == text


def test_long_values_fit_and_differ() -> None:
    one, other = folder_value("ü" * 500), folder_value("ü" * 501)
    assert one != other
    assert len(one.encode()) < 200


def test_a_null_time_has_a_folder(tmp_path: Path) -> None:
    rows = batch(0, 2).set_column(2, "storeTimestamp", pa.array([None, 5], pa.timestamp("us", tz="UTC")))
    write(tmp_path, Layout(COLUMNS, ("date",)), rows)
    assert files(tmp_path) == ["date=1970-01-01/part-1.parquet", f"date={NO_VALUE}/part-1.parquet"]


def test_columns_that_only_name_the_partition_are_not_written(tmp_path: Path) -> None:
    layout = Layout(("queueOffset",), ("date", "topic"))
    assert layout.read == ("queueOffset", "storeTimestamp", "topic")
    write(tmp_path, layout, batch(0, 2))
    assert pq.ParquetFile(tmp_path / "date=1970-01-01/topic=T/part-1.parquet").schema_arrow.names == [
        "queueOffset"
    ]


def test_nothing_has_its_name_before_it_is_whole(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path, "part-1", Layout(COLUMNS)) as part:
        part.write(batch(0, 10))
        assert [name[0] for name in files(tmp_path)] == ["."]
    assert files(tmp_path) == []


def test_a_task_done_again_replaces_its_files(tmp_path: Path) -> None:
    layout = Layout(COLUMNS, ("topic",))
    once = write(tmp_path, layout, batch(0, 10))
    assert write(tmp_path, layout, batch(0, 10)) == once
    assert len(files(tmp_path)) == 1


def test_few_files_are_open_and_none_is_lost(tmp_path: Path) -> None:
    batches = [batch(turn * 10 + number, 1, f"T{number}") for turn in range(3) for number in range(5)]
    written = write(tmp_path, Layout(COLUMNS, ("topic",)), *batches, writers_max=2)
    found = [row for each in written for row in pq.ParquetFile(tmp_path / each.path).read().to_pylist()]
    assert sorted(row["queueOffset"] for row in found) == [
        turn * 10 + number for turn in range(3) for number in range(5)
    ]
    assert {row["topic"] for row in found} == {f"T{number}" for number in range(5)}
    assert max(each.path for each in written).startswith("topic=T4/part-1")


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_BYTES", 10_000)
    write(tmp_path, Layout(COLUMNS), *(batch(number * 10, 10, body=bytes(400)) for number in range(10)))
    groups = pq.read_metadata(tmp_path / "part-1.parquet")
    assert groups.num_row_groups == 4
    assert groups.num_rows == 100


def test_what_waits_in_all_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "WAITING_BYTES_MAX", 10_000)
    with ParquetWriter(tmp_path, "part-1", Layout(COLUMNS, ("topic",))) as part:
        for number in range(40):
            part.write(batch(number, 1, f"T{number % 8}", body=bytes(1000)))
            assert sum(each.waiting_bytes for each in part._open.values()) <= 10_000
        assert sum(each.rows for each in part.finish()) == 40


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(200_000)
    with files_up_to(100_000), pytest.raises(ExportFailed, match="free some space and run it again"):
        write(tmp_path, Layout(COLUMNS), batch(0, 1, body=noise))
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "topic=T").write_text("a file")
    with pytest.raises(ExportFailed, match="cannot be written") as refused:
        write(tmp_path, Layout(COLUMNS, ("topic",)), batch(0, 1))
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno in (errno.EEXIST, errno.ENOTDIR)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"columns": ("nonsense",)}, "columns: unknown column 'nonsense'"),
        ({"partition_by": ("body",)}, "--partition-by: unknown 'body'"),
        ({"partition_by": ("topic", "topic")}, "named twice"),
        ({"compression": "rar"}, "--compression: unknown 'rar'"),
        ({"level": 23}, "--level: only for zstd, from 1 to 22"),
        ({"compression": "none", "level": 3}, "only for zstd"),
    ],
)
def test_a_wrong_layout_is_refused(arguments: dict[str, object], expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        Layout(**{"columns": COLUMNS, **arguments})  # type: ignore[arg-type]


def test_every_partition_can_be_asked_for_with_one_column() -> None:
    layout = Layout(("body",), PARTITIONS)
    assert set(layout.read) == {"body", "storeTimestamp", "topic", "queueId", "brokerName", "tags"}


def test_row_groups_say_between_which_values_their_rows_lie(tmp_path: Path) -> None:
    write(tmp_path, Layout((*COLUMNS, "bodyCrc")), *crced(batch(3, 10)))
    group = pq.ParquetFile(tmp_path / "part-1.parquet").metadata.row_group(0)
    columns = {
        group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)
    }
    assert {name for name, found in columns.items() if found is not None} == {*COLUMNS} - {"body"}
    assert (columns["queueOffset"].min, columns["queueOffset"].max) == (3, 12)


def crced(of: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield of.append_column("bodyCrc", pa.array([7] * len(of), pa.int32()))
