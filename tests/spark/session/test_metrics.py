"""What Spark's UI and its progress reports show of the source and the sink: rows, bytes, offsets, what is observed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from firearrow.client.local_broker import LocalBroker
from tests.spark.stores import KnownStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "Orders"
ROWS, SENT, RETURNED = (
    "number of output rows",
    "data sent to Python workers",
    "data returned from Python workers",
)


def ui_metrics(spark: "SparkSession") -> dict[str, str]:
    """Those of the latest query, as the UI's page shows them."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    queries = spark._jsparkSession.sharedState().statusStore()
    latest = queries.executionsList().last()
    values, metrics = queries.executionMetrics(latest.executionId()), latest.metrics()
    found = {}
    for number in range(metrics.size()):
        value = values.get(metrics.apply(number).accumulatorId())
        if value.isDefined():
            found[metrics.apply(number).name()] = value.get()
    return found


def test_rows_and_bytes_in_the_ui(
    spark: "SparkSession", store: KnownStore, broker: LocalBroker, topics: Callable[..., str]
) -> None:
    rows = spark.read.format("rocketmq").option("topic", TOPIC).load(str(store.root))
    rows.collect()
    read = ui_metrics(spark)
    assert read[ROWS] == str(len(store.of(TOPIC)))
    assert read[RETURNED].endswith("B")
    frame = spark.createDataFrame([("hello",)] * 7, "body string").coalesce(1)
    sink = frame.write.format("rocketmq").mode("append")
    sink.options(nameServer=broker.name_server, topic=topics(1)).save()
    assert SENT in ui_metrics(spark)


def test_progress_of_a_stream(spark: "SparkSession", store: KnownStore, tmp_path: Path) -> None:
    source = spark.readStream.format("rocketmq").options(topic=TOPIC, startingOffsets="earliest")
    observed = source.load(str(store.root)).observe("orders", F.count("*").alias("n"))
    writer = observed.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    [progress] = [each for each in query.recentProgress if each.numInputRows]
    assert progress.numInputRows == len(store.of(TOPIC))
    assert progress.observedMetrics["orders"].n == len(store.of(TOPIC))
    assert TOPIC in progress.sources[0].latestOffset
    assert not progress.sources[0].metrics  # as docs/SPARK_REFERENCE.md states
