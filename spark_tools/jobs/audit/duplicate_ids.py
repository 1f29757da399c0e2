"""Counts messages of one topic with the same unique key, exactly, with Spark, which spills to disk if
necessary.

A producer that got no response sends again, so a few are not a fault of a store. Topics of retries, dead
letters and the system are left out: redelivery there is normal.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from firearrow._native.offline.store_folder import StoreFolder
from firearrow.spark_tools.sessions import register

NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    topic: str
    unique_key: str
    messages: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """`keys`: keys with more than one message. `surplus`: messages beyond the first of each. `named`: some of
    the keys."""

    keys: int
    surplus: int
    named: tuple[DuplicateKey, ...]

    @property
    def as_text(self) -> str:
        return f"{self.keys:,} unique keys are in more than one message of their topic, {self.surplus:,} too many"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "named": [asdict(each) for each in self.named]}


def find_duplicates(spark: SparkSession, stores: Sequence[StoreFolder]) -> Duplicates:
    register(spark)
    reader = (
        spark.read.format("rocketmq").schema("topic string, uniqKey string").option("failOnDataLoss", "false")
    )
    reader = reader.option("path", orjson.dumps([f"{store.name}={store.root}" for store in stores]).decode())
    counted = (
        reader.load()
        .where(F.col("uniqKey").isNotNull())
        .groupBy("topic", "uniqKey")
        .count()
        .where(F.col("count") > 1)
        .cache()
    )
    [sums] = counted.agg(F.count("*").alias("keys"), F.sum(F.col("count") - 1).alias("surplus")).collect()
    rows = counted.orderBy(F.desc("count"), "topic", "uniqKey").limit(NAMED_MAX).collect()
    counted.unpersist()
    return Duplicates(
        sums["keys"], sums["surplus"] or 0, tuple(DuplicateKey(row[0], row[1], row[2]) for row in rows)
    )
