"""What the sink refuses before anything is sent, each with a sentence; and that it can be pickled."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.arrow.batch_sender import SentTotals, SinkSettings
from firearrow.spark_tools.arrow.message_columns import check_columns, columns_table
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.datasource.sink import TableWriter, TaskCommit, report_aborted, table_writer
from firearrow.spark_tools.datasource.sink_options import BATCH, STREAM, SinkOptions
from firearrow.spark_tools.datasource.stream_sink import (
    StreamWriter,
    max_offsets,
    recording_offsets,
    stream_writer,
)
from tests.meta.readme import section
from tests.spark.docs import SPARK

THERE = {"nameserver": "127.0.0.1:1"}
SOURCE = pa.schema(
    [
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("topic", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"topic": pa.string()}, "column body is missing"),
        ({"body": pa.int32()}, "column body: must be binary or string, not int32; cast it"),
        ({"body": pa.string()}, "no topic: add a column topic, or give the option topic"),
        (
            {"body": pa.string(), "tag": pa.string()},
            "column tag: unknown to the sink; drop it or rename it to one of body",
        ),
        (
            {"body": pa.string(), "keys": pa.list_(pa.int32())},
            "column keys: must be string or array<string>",
        ),
        (
            {"body": pa.string(), "properties": pa.map_(pa.string(), pa.int32())},
            "column properties: must be map<string,string>",
        ),
        ({"body": pa.string(), "queueId": pa.string()}, "column queueId: must be int"),
        (
            {"body": pa.string(), "deliverTime": pa.float64()},
            "column deliverTime: must be timestamp, or bigint in ms",
        ),
    ],
)
def test_columns_that_make_no_message(columns: dict[str, pa.DataType], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        check_columns(pa.schema(columns), None)


def test_columns_of_the_source_are_passed_over_and_types_may_vary() -> None:
    columns = {
        "body": pa.large_binary(),
        "keys": pa.list_(pa.string()),
        "flag": pa.int16(),
        "queueId": pa.int64(),
        "deliverTime": pa.timestamp("us"),
        "storeTimestamp": pa.timestamp("us"),
        "bornHost": pa.string(),
    }
    check_columns(pa.schema(columns), "T")


def test_what_says_where_rows_were_read_must_be_there_when_it_is_asked_for() -> None:
    schema = pa.schema([("body", pa.string()), *SOURCE])
    check_columns(schema, None, job="j")
    for missing in SOURCE.names:
        with pytest.raises(InvalidOption, match="provenance needs the column"):
            check_columns(schema.remove(schema.get_field_index(missing)), "T", job="j")
    with pytest.raises(InvalidOption, match="packedBodies needs the column sysFlag"):
        check_columns(schema, None, packed=True)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "nameServer: `host:port`"),
        ({**THERE, "path": "/store"}, "path: a store's files are never written"),
        ({**THERE, "topics": "a"}, r"topics: unknown option; did you mean topic\?"),
        ({**THERE, "topic": "a b"}, "topic='a b': .*only a to z"),
        ({**THERE, "queues": "some"}, "queues='some': expected exact or modulo or any"),
        ({**THERE, "sendbatchbytes": "5m"}, "sendBatchBytes='5m': expected 1024 to"),
        ({**THERE, "compression": "gzip"}, "compression='gzip': expected none or zlib or lz4 or zstd"),
        ({**THERE, "compression": "zlib", "packedbodies": "true"}, "compression: with packedBodies=true"),
        ({**THERE, "commitgroup": "g"}, "commitGroup: this option is only for stream"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        SinkOptions.of(given, BATCH)


def test_the_options_define_how_rows_become_messages() -> None:
    assert SinkOptions.of(THERE, BATCH).sink_settings() == SinkSettings()
    given = {
        **THERE,
        "topic": "T",
        "provenance": "nightly",
        "queues": "modulo",
        "packedbodies": "true",
        "sendbatchbytes": "2k",
        "sendtimeout": "250ms",
    }
    packed = SinkOptions.of({**THERE, "compression": "ZSTD"}, BATCH).sink_settings()
    assert packed == SinkSettings(compression=CompressionKind.ZSTD)
    assert SinkOptions.of({**THERE, "compression": "none"}, BATCH).sink_settings() == SinkSettings()
    options = SinkOptions.of(given, BATCH)
    assert options.timeout_s == 0.25
    assert options.sink_settings() == SinkSettings(
        topic="T", job="nightly", queues=QueueIdUse.MODULO, packed_bodies=True, batch_bytes=2048
    )


def test_options_of_streams() -> None:
    with pytest.raises(InvalidOption, match="commitNameServer goes with commitGroup"):
        SinkOptions.of({**THERE, "commitnameserver": "h:1"}, STREAM)
    given = {
        **THERE,
        "commitgroup": "g",
        "commitNameServer": "h:1",
        "checkpointlocation": "/c",
        "rocketmq.useTLS": "true",
    }
    options = SinkOptions.of(given, STREAM)
    assert options.source(given).name_server == "h:1"
    assert options.source(given).tls
    assert SinkOptions.of(THERE, STREAM).source(THERE).name_server == "127.0.0.1:1"


def spark_schema(ddl: str) -> StructType:
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        schema.add(name, {"bigint": "long", "int": "integer"}.get(kind, kind))
    return schema


def test_overwriting_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        InvalidOption, match=r"mode overwrite: brokers cannot replace messages; write with \.mode\('append'\)"
    ):
        table_writer({**THERE, "topic": "T"}, spark_schema("body string"), overwrite=True)
    with pytest.raises(InvalidOption, match="outputMode complete: brokers cannot replace messages"):
        stream_writer({**THERE, "topic": "T"}, spark_schema("body string"), overwrite=True)


def test_writers_and_their_messages_travel() -> None:
    schema = spark_schema(
        "body binary, topic string, brokerName string, queueId int, queueOffset bigint, deliverTime timestamp"
    )
    table = pickle.loads(pickle.dumps(table_writer(THERE, schema, overwrite=False)))
    stream = pickle.loads(pickle.dumps(stream_writer({**THERE, "commitgroup": "g"}, schema, overwrite=False)))
    assert isinstance(table, TableWriter)
    assert isinstance(stream, StreamWriter)
    assert pickle.loads(pickle.dumps(TaskCommit(SentTotals(3, 4, {})))).sent.messages == 3


def test_a_group_can_follow_only_rows_that_say_where_they_were_read() -> None:
    with pytest.raises(InvalidOption, match="commitGroup needs the column brokerName"):
        stream_writer(
            {**THERE, "topic": "T", "commitgroup": "g"}, spark_schema("body string"), overwrite=False
        )


def test_the_offset_after_the_last_row_of_each_queue_is_collected() -> None:
    batches = [
        pa.record_batch(
            [["b"] * len(ids), pa.array(ids, pa.int32()), offsets, ["T"] * len(ids)], schema=SOURCE
        )
        for ids, offsets in (([0, 0, 1], [5, 4, 9]), ([0], [2]))
    ]
    read: dict[object, int] = {}
    assert list(recording_offsets(iter(batches), read)) == batches  # type: ignore[arg-type]
    assert {queue.queue_id: offset for queue, offset in read.items()} == {0: 6, 1: 10}  # type: ignore[attr-defined]
    assert max_offsets([read, {next(iter(read)): 99}]).popitem()[1] in (99, 10)  # type: ignore[list-item, dict-item]


def test_a_failed_write_reports_what_stays() -> None:
    text = report_aborted([TaskCommit(SentTotals(5)), None, TaskCommit(SentTotals(2))])
    assert "2 of 3 tasks finished, and the target keeps their 7 messages" in text


def test_the_documented_columns_are_the_real_ones() -> None:
    table = section(SPARK.read_text("utf-8"), "sink columns")
    assert table == columns_table(), "run python -m tests.spark.docs"
