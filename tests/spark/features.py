"""What of the Spark tools works: `python features.py (classic|connect) NAME_SERVER STORE FOLDER [FEATURE…]`.

It prints a JSON object: for each feature `ok`, or the error. NAME_SERVER has the topics `Orders`, with 10 JSON bodies,
and `Target`. Imports nothing of the tests, so that it runs with another Spark's interpreter.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from firearrow import spark_tools
from firearrow.client import blocking

WITHIN_S = 60
FEATURES: dict[str, Callable[..., None]] = {}


def feature(function: Callable[..., None]) -> Callable[..., None]:
    FEATURES[function.__name__] = function
    return function


class Site:
    def __init__(self, spark: SparkSession, name_server: str, store: str, folder: Path) -> None:
        self.spark = spark
        self.name_server = name_server
        self.store = store
        self.folder = folder

    def live(self, **options: str) -> DataFrame:
        given = {"nameServer": self.name_server, "topic": "Orders", **options}
        return self.spark.read.format("rocketmq").options(**given).load()

    def stream(self, **options: str) -> DataFrame:
        source = self.spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
        return source.options(nameServer=self.name_server, topic="Orders", **options).load()

    def run(self, writer: DataStreamWriter, name: str) -> StreamingQuery:
        query = (
            writer.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(WITHIN_S)
        return query

    def targets(self) -> int:
        return int(self.live(topic="Target").count())


@feature
def table_of_files(site: Site) -> None:
    found = site.spark.read.format("rocketmq").option("topic", "Orders").load(site.store)
    assert found.count() == 10


@feature
def table_of_brokers(site: Site) -> None:
    assert site.live().select("body").distinct().count() == 10


@feature
def sql_view(site: Site) -> None:
    site.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log USING rocketmq OPTIONS (path '{site.store}', topic 'Orders')"
    )
    assert site.spark.sql("SELECT count(*) FROM log").first()[0] == 10


@feature
def read_where(site: Site) -> None:
    assert (
        spark_tools.read_where(site.spark, "topic = 'Orders' AND queueId = 0", path=site.store).count() == 10
    )


@feature
def scan(site: Site) -> None:
    assert spark_tools.scan(site.spark, path=site.store, topic="Orders").count() == 10


@feature
def from_body_json(site: Site) -> None:
    order = spark_tools.from_body("id bigint")
    assert sorted(row[0].id for row in site.live().select(order).collect()) == list(range(10))


@feature
def from_body_msgpack(site: Site) -> None:
    frame = site.spark.createDataFrame([(b"\x81\xa2id\x07",)], "body binary")
    assert frame.select(spark_tools.from_body("id bigint", "msgpack").alias("order")).first().order.id == 7


@feature
def sink(site: Site) -> None:
    before = site.targets()
    frame = site.spark.createDataFrame([("hello", "new")], "body string, tags string")
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(nameServer=site.name_server, topic="Target").save()
    assert site.targets() == before + 1


@feature
def stream_into_files(site: Site) -> None:
    query = site.run(
        site.stream().writeStream.format("parquet").option("path", str(site.folder / "rows")), "one"
    )
    assert site.spark.read.parquet(str(site.folder / "rows")).count() == 10
    assert spark_tools.lag(query.lastProgress).messages == 0


@feature
def stream_into_a_topic(site: Site) -> None:
    before = site.targets()
    rows = site.stream().select("body")
    sink = rows.writeStream.format("rocketmq").options(nameServer=site.name_server, topic="Target")
    site.run(sink, "two")
    assert site.targets() == before + 10


@feature
def foreach_batch(site: Site) -> None:
    def batch(rows: DataFrame, number: int) -> None:
        rows.select("body").write.mode("append").parquet(str(Path(folder) / "each"))

    folder = str(site.folder)
    site.run(site.stream().writeStream.foreachBatch(batch), "three")
    assert site.spark.read.parquet(str(site.folder / "each")).count() == 10


@feature
def group_follows(site: Site) -> None:
    target = spark_tools.Cluster.of({"nameServer": site.name_server})
    with blocking.Admin(name_server=site.name_server) as admin:
        admin.create_group("followers")
    follows = spark_tools.GroupFollows(target, "followers")
    site.spark.streams.addListener(follows)
    try:
        site.run(site.stream().writeStream.format("noop"), "four")
        with blocking.Admin(name_server=site.name_server) as admin:
            [queue] = admin.queues("Orders")
            eventually(lambda: admin.offset("followers", queue) == 10)
    finally:
        site.spark.streams.removeListener(follows)


@feature
def job(site: Site) -> None:
    assert (
        spark_tools.run_job("export", "--path", site.store, "--to", site.folder / "exported", "--quiet") == 0
    )
    assert site.spark.read.parquet(str(site.folder / "exported")).count() >= 10


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def session(kind: str, folder: Path) -> SparkSession:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "OFF"}
    settings["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    if kind == "classic":
        return spark_tools.session("features", master="local[2]", settings=settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_tools.register(spark)
    return spark


def main(kind: str, name_server: str, store: str, folder: str, *only: str) -> None:
    site = Site(session(kind, Path(folder)), name_server, store, Path(folder))
    found = {}
    for name in only or FEATURES:
        print(name, file=sys.stderr, flush=True)
        try:
            FEATURES[name](site)
            found[name] = "ok"
        except (Exception, SystemExit) as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({"version": site.spark.version, **found}))
    site.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
