"""The fixtures of the other tests: the content of the known store, and that the session runs Python of this tree."""

from typing import TYPE_CHECKING

from firearrow._native.columnar.record_spans import End, walk
from firearrow.client.base.compression import COMPRESSED, open_body
from tests.spark.stores import KnownStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_known_store_holds_what_was_sent(store: KnownStore) -> None:
    found = {}
    segments = sorted((store.root / "commitlog").iterdir())
    assert len(segments) > 1
    for path in segments:
        spans, _, end = walk(path.read_bytes(), 0, path.stat().st_size, base=int(path.name), check_crc=True)
        assert end in (End.BLANK, End.UNWRITTEN)
        found.update(
            {(spans[i].topic, spans[i].queue_id, spans[i].queue_offset): spans[i] for i in range(len(spans))}
        )
    for known in store.messages:
        record = found[known.queue.topic, known.queue.queue_id, known.queue_offset]
        assert open_body(record.sys_flag, record.body) == known.body
        assert bool(record.sys_flag & COMPRESSED) == (known.packed is not None)
        assert record.properties.get("TAGS") == known.tags
        assert record.properties.get("KEYS", "") == " ".join(known.keys)
        assert record.properties["UNIQ_KEY"] == known.unique_id
        assert known.properties.items() <= record.properties.items()
        assert record.flag == known.flag
    assert {known.packed for known in store.messages} == {None, "zlib", "lz4", "zstd"}


def _version(number: int) -> str:
    from firearrow._native.columnar import record_spans  # noqa: PLC0415 (imported where it runs: in a worker)

    return f"{number} {record_spans.__name__}"


def test_workers_have_the_package(spark: "SparkSession") -> None:
    versions = spark.sparkContext.parallelize([1, 2], 2).map(_version).collect()
    assert versions == [
        "1 firearrow._native.columnar.record_spans",
        "2 firearrow._native.columnar.record_spans",
    ]
