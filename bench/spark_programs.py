"""Spark programs, as users write them: `python -m bench.spark_programs SETTINGS NAME …`; `bench.spark_commands` times
them. The last line of output is JSON."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from firearrow import spark_tools

KAFKA_TUNED = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": str(128 << 20),
}
BODY = "cast(concat(cast(id AS string), repeat('0123456789abcdef', 63)) AS binary)"
PARTITIONS = 4
MICRO_BATCH_ROWS = 20_000
ROUNDS, ROUNDS_WARM = 3, 2
"""The first rounds warm up the JVM and the workers of every row."""


def replay(spark: SparkSession, store: str, name_server: str) -> object:
    began = time.perf_counter()
    table = spark.read.format("rocketmq").load(store)
    table.write.format("rocketmq").option("nameServer", name_server).mode("append").save()
    return time.perf_counter() - began


def export(spark: SparkSession, store: str, to: str) -> object:
    began = time.perf_counter()
    table = spark.read.format("rocketmq").load(store)
    table.write.option("compression", "zstd").parquet(to)
    return time.perf_counter() - began


def beside_kafka(spark: SparkSession, rows: str, name_server: str, kafka: str, folder: str) -> object:
    """Seconds of each row: its samples in the warm rounds."""
    table = spark.range(int(rows), numPartitions=PARTITIONS).selectExpr(
        "cast(id AS string) AS key", f"{BODY} AS value"
    )
    ours = table.selectExpr("key AS keys", "value AS body")

    def sink(frame: DataFrame, source: str, **options: str) -> Callable[[int], None]:
        def run(number: int) -> None:
            writer: DataFrameWriter = frame.write.format(source).options(**options)
            writer.mode("append").save()

        return run

    def stream(source: str, **options: str) -> Callable[[int], None]:
        def run(number: int) -> None:
            reader = spark.readStream.format(source).option("startingOffsets", "earliest")
            frame = reader.options(maxOffsetsPerTrigger=str(MICRO_BATCH_ROWS), **options).load()
            writer = frame.writeStream.format("noop").trigger(availableNow=True)
            writer.option("checkpointLocation", f"{folder}/{source}-{number}").start().awaitTermination()

        return run

    at_ours, at_kafka = {"nameServer": name_server}, {"kafka.bootstrap.servers": kafka}
    sink(ours, "rocketmq", topic="stream", **at_ours)(0)
    sink(table, "kafka", topic="stream", **at_kafka, **KAFKA_TUNED)(0)
    runs = {
        "sink": sink(ours, "rocketmq", topic="T", **at_ours),
        "sink, kafka tuned": sink(table, "kafka", topic="T", **at_kafka, **KAFKA_TUNED),
        "sink lz4": sink(ours, "rocketmq", topic="L", compression="lz4", **at_ours),
        "sink lz4, kafka tuned": sink(
            table, "kafka", topic="L", **at_kafka, **KAFKA_TUNED, **{"kafka.compression.type": "lz4"}
        ),
        "micro-batches": stream("rocketmq", topic="stream", **at_ours),
        "micro-batches, kafka": stream("kafka", subscribe="stream", **at_kafka),
    }
    return samples(runs)


def readers(spark: SparkSession, store: str, parquet: str) -> object:
    """Seconds of each row: its samples in the warm rounds. `parquet`: a folder to write the same rows to."""
    source = spark.read.format("rocketmq")
    if not Path(parquet).exists():
        source.load(store).write.option("compression", "snappy").parquet(parquet)

    def to_nothing(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    runs: dict[str, Callable[[int], None]] = {
        "read": lambda _: to_nothing(spark.read.format("rocketmq").load(store)),
        "scan": lambda _: to_nothing(spark_tools.scan(spark, path=store)),
        "read, parquet snappy": lambda _: to_nothing(spark.read.parquet(parquet)),
        "tags": lambda _: to_nothing(spark.read.format("rocketmq").option("columns", "tags").load(store)),
        "tags, parquet snappy": lambda _: to_nothing(spark.read.parquet(parquet).select("tags")),
    }
    return samples(runs)


def samples(runs: Mapping[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """Seconds of each row in the warm rounds. A run gets the number of the round."""
    found: dict[str, list[float]] = {}
    for number in range(ROUNDS_WARM + ROUNDS):
        for name, run in runs.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            began = time.perf_counter()
            run(number)
            if number >= ROUNDS_WARM:
                found.setdefault(name, []).append(time.perf_counter() - began)
    return found


PROGRAMS: dict[str, Callable[..., object]] = {
    each.__name__: each for each in (replay, export, beside_kafka, readers)
}

if __name__ == "__main__":
    settings, name, *words = sys.argv[1:]
    session = spark_tools.session("bench", settings=json.loads(settings))
    print(json.dumps(PROGRAMS[name](session, *words)))
