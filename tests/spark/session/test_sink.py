"""The sink in a session: what only Spark itself can show."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from firearrow.client.base.compression import COMPRESSED, open_body
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools import register
from firearrow.spark_tools.base.provenance import Provenance
from tests.spark.replaying import stored
from tests.spark.stores import BROKER, KnownStore
from tests.spark.waiting import await_some

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 600
LEVEL_MS = 1000
"""The broker's first delay level."""
TIMER_MS = 1000
"""The precision of timers."""
DUE_MS = 4000


@pytest.fixture
def write(spark: "SparkSession", broker: LocalBroker) -> "Callable[..., None]":
    register(spark)

    def write(frame: "DataFrame", **options: str) -> None:
        given = {"nameServer": broker.name_server, **options}
        frame.write.format("rocketmq").mode("append").options(**given).save()

    return write


def test_every_column_becomes_what_it_says(
    spark: "SparkSession", write: Callable[..., None], broker: LocalBroker, topics: Callable[..., str]
) -> None:
    topic = topics(4)
    frame = spark.sql(f"""
        SELECT encode(concat('body-', id), 'utf-8') AS body, '{topic}' AS topic, CAST(id % 4 AS int) AS queueId,
               IF(id % 2 = 0, 'even', NULL) AS tags, array(concat('a', id), concat('b', id)) AS keys,
               map('n', CAST(id AS string), 'DELAY', '3') AS properties, CAST(id AS int) AS flag,
               IF(id % 3 = 0, concat('UID', id), NULL) AS uniqKey
        FROM range(0, 200, 1, 2)""")
    write(frame)
    found = stored(broker.store, topic)
    assert {name: len(records) for name, records in found.items()} == {
        (BROKER, number): 50 for number in range(4)
    }
    ids = set()
    for (_, queue_id), records in found.items():
        numbers = [int(record.body.removeprefix(b"body-")) for record in records]
        assert sorted(numbers) == list(range(queue_id, 200, 4))
        for number, record in zip(numbers, records, strict=True):
            properties = dict(record.properties)
            ids.add(properties.pop("UNIQ_KEY"))
            assert (f"UID{number}" in ids) is (number % 3 == 0)
            tags = {"TAGS": "even"} if number % 2 == 0 else {}
            assert properties == {"n": str(number), "KEYS": f"a{number} b{number}"} | tags
            assert record.flag == number
    assert len(ids) == 200


def test_what_was_read_is_written_again_with_its_provenance(
    spark: "SparkSession",
    write: Callable[..., None],
    broker: LocalBroker,
    topics: Callable[..., str],
    store: KnownStore,
) -> None:
    topic = topics(4)
    frame = spark.read.format("rocketmq").option("topic", "Orders").load(str(store.root))
    write(frame, topic=topic, provenance="nightly")
    found = stored(broker.store, topic)
    for queue_id in range(4):
        known = store.in_queue("Orders", queue_id)
        records = found[BROKER, queue_id]
        assert [record.body for record in records] == [each.body for each in known]
        for record, each in zip(records, known, strict=True):
            assert Provenance.of(record.properties) == Provenance("nightly", each.queue, each.queue_offset)
            assert record.properties["UNIQ_KEY"] == each.unique_id


def test_queues_packed_bodies_and_delays_reach_the_broker(
    spark: "SparkSession",
    write: Callable[..., None],
    broker: LocalBroker,
    topics: Callable[..., str],
    store: KnownStore,
) -> None:
    """Four queues become three, bodies stay as they are stored; of each queue two messages come later."""
    topic, due = topics(3), time.time_ns() // 1_000_000 + DUE_MS
    read = spark.read.format("rocketmq").options(topic="Orders", openBodies="false").load(str(store.root))
    frame = read.selectExpr(
        "body",
        "sysFlag",
        "queueId",
        "uniqKey",
        "IF(queueOffset = 1, 1, NULL) AS delayLevel",
        f"IF(queueOffset = 2, {due}, NULL) AS deliverTime",
    )
    write(frame, topic=topic, queues="modulo", packedBodies="true", sendBatchBytes="4k")
    known = store.of("Orders")
    await_some(broker.name_server, topic, len(known))
    sent = [record for records in stored(broker.store, topic).values() for record in records]
    found = {record.properties["UNIQ_KEY"]: record for record in sent}
    assert len(sent) == len(found) == len(known)
    for each in known:
        record = found[each.unique_id]
        assert record.queue_id == each.queue.queue_id % 3
        assert bool(record.sys_flag & COMPRESSED) is (each.packed is not None)
        assert open_body(record.sys_flag, record.body) == each.body
        if each.queue_offset == 1:
            assert record.store_timestamp - record.born_timestamp >= LEVEL_MS
        if each.queue_offset == 2:
            assert record.store_timestamp >= due - TIMER_MS


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_rows_are_read_as_they_were_written(
    spark: "SparkSession",
    write: Callable[..., None],
    broker: LocalBroker,
    topics: Callable[..., str],
    kind: str,
) -> None:
    topic = topics(2)
    write(
        spark.range(50).selectExpr("repeat(cast(id AS string), 3000) AS body"), topic=topic, compression=kind
    )
    records = [record for found in stored(broker.store, topic).values() for record in found]
    assert all(record.sys_flag & COMPRESSED for record in records)
    assert max(len(record.body) for record in records) < 500
    source = spark.read.format("rocketmq").options(nameServer=broker.name_server, topic=topic).load()
    bodies = {row.text for row in source.selectExpr("cast(body AS string) AS text").collect()}
    assert bodies == {str(number) * 3000 for number in range(50)}


def test_a_silent_target_is_waited_for_until_the_timeout(
    spark: "SparkSession", write: Callable[..., None]
) -> None:
    with pytest.raises(Exception, match=r"no answer within 0\.25 s"):
        write(spark.sql("SELECT 'a' AS body"), nameServer="127.0.0.1:1", topic="T", sendTimeout="250ms")


def test_a_task_that_is_tried_again_sends_again_and_the_repeats_are_recognised(
    spark_retrying: "SparkSession",
    write: Callable[..., None],
    broker: LocalBroker,
    topics: Callable[..., str],
) -> None:
    topic, name_server = topics(2), broker.name_server

    def rows(numbers: Iterable[int]) -> Iterable[tuple[str]]:
        from pyspark import TaskContext  # noqa: PLC0415 (runs in the worker)

        context = TaskContext.get()
        for number in numbers:
            if number == ROWS - 1 and context is not None and context.attemptNumber() == 0:
                await_some(name_server, topic)
                raise RuntimeError("the first attempt ends here")
            yield (f"{number:05d}" + "x" * 2000,)

    spark_retrying.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        made = spark_retrying.sparkContext.parallelize(range(ROWS), 1).mapPartitions(rows)
        write(spark_retrying.createDataFrame(made, "body string"), topic=topic)
    finally:
        spark_retrying.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    sent = [record for records in stored(broker.store, topic).values() for record in records]
    assert len(sent) > ROWS
    assert len({record.body for record in sent}) == ROWS
    ids = Counter((record.body, record.properties["UNIQ_KEY"]) for record in sent)
    assert len(ids) == ROWS == len({unique_id for _, unique_id in ids})


def test_what_cannot_be_sent_is_one_sentence(
    spark: "SparkSession", write: Callable[..., None], topics: Callable[..., str]
) -> None:
    good = spark.sql("SELECT 'a' AS body")
    with pytest.raises(Exception, match=r"topic nowhere: .* has no writable queue of it; create the topic"):
        write(good, topic="nowhere")
    with pytest.raises(Exception, match="InvalidOption: column tag: unknown to the sink; drop it"):
        write(spark.sql("SELECT 'a' AS body, 'b' AS tag"), topic="nowhere")
    with pytest.raises(Exception, match="InvalidOption: row 0: its body is null"):
        write(spark.sql("SELECT CAST(NULL AS string) AS body"), topic=topics())
    with pytest.raises(Exception, match="InvalidOption: mode overwrite: brokers cannot replace messages"):
        good.write.format("rocketmq").mode("overwrite").option("nameServer", "127.0.0.1:1").save()


def test_spark_itself_wants_a_mode(spark: "SparkSession", broker: LocalBroker) -> None:
    """Why docs/SPARK_REFERENCE.md says to use mode('append'): Spark refuses the default before it calls the sink."""
    register(spark)
    frame = spark.sql("SELECT 'a' AS body")
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("rocketmq").option("nameServer", broker.name_server).option("topic", "T").save()
