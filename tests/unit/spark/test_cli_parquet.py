"""Parquet of `firearrow topic export` is that of Spark's jobs: the same columns and types, taken by their import."""

from pathlib import Path
from typing import Any

import orjson

from firearrow.client.cli.transfer import message_file
from firearrow.spark_tools.arrow import columns
from firearrow.spark_tools.arrow.message_columns import check_columns
from firearrow.spark_tools.jobs.parquet_input import parquet_input, topic_rows

LINE: dict[str, Any] = {
    "topic": "T",
    "broker": "b",
    "queueId": 1,
    "offset": 7,
    "storedMs": 1795248000001,
    "bornMs": 1795248000000,
    "bornHost": "127.0.0.1:1",
    "storeHost": "127.0.0.1:2",
    "tags": None,
    "keys": ["a", "b"],
    "reconsumeTimes": 0,
    "properties": {"p": "ü", "UNIQ_KEY": "F" * 32},
    "flag": 3,
    "sysFlag": 0,
    "bodyCrc": 1,
    "physicalOffset": 9,
    "preparedTransactionOffset": 0,
    "body": "/wA=",
    "bodyEncoding": "base64",
}


def test_columns_are_those_of_the_jobs() -> None:
    assert message_file.parquet_schema().equals(columns.schema())


def test_the_jobs_take_it(tmp_path: Path) -> None:
    lines, file = tmp_path / "lines", tmp_path / "file.parquet"
    lines.write_bytes(b"".join(orjson.dumps(LINE | {"offset": each}) + b"\n" for each in range(3)))
    assert message_file.write_parquet(lines, file) == 3
    found = parquet_input(file, contents=False, ordered=True)
    for schema in found.schemas:
        check_columns(schema, None, packed=found.packed)
    assert topic_rows(found.file_ranges[0].files[0], "") == {"T": 3}


def test_a_row_is_the_line_again(tmp_path: Path) -> None:
    lines, file = tmp_path / "lines", tmp_path / "file.parquet"
    lines.write_bytes(orjson.dumps(LINE) + b"\n")
    message_file.write_parquet(lines, file)
    [(number, row)] = message_file.parquet_rows(file)
    assert isinstance(row, dict)
    assert number == 1
    assert message_file.message_of(row, "T", check_crc=False) == message_file.message_of(
        LINE, "T", check_crc=False
    )
