"""The format in a session: what only Spark itself can show."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.spark_tools import read_where, register, scan
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from tests.spark.stores import TOPICS, Golden, KnownStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def load(spark: "SparkSession", store: KnownStore) -> "Callable[..., DataFrame]":
    """Reads the known store."""
    register(spark)

    def load(**options: str) -> "DataFrame":
        return spark.read.format("rocketmq").options(**options).load(str(store.root))

    return load


def test_the_table_is_the_log(load: "Callable[..., DataFrame]", store: KnownStore) -> None:
    rows = load(topic="Orders", minPartitions="3").collect()
    found = {(row.queueId, row.queueOffset): row for row in rows}
    known = store.of("Orders")
    assert len(rows) == len(found) == len(known)
    for each in known:
        row = found[each.queue.queue_id, each.queue_offset]
        assert (row.topic, row.brokerName, row.body) == ("Orders", each.queue.broker_name, each.body)
        assert (row.tags, row.uniqKey, row.flag) == (each.tags, each.unique_id, each.flag)
        assert row["keys"] == (" ".join(each.keys) or None)
        assert each.properties.items() <= row.properties.items()


@pytest.mark.parametrize("narrowed", [True, False])
def test_filters_give_the_same_with_and_without_push_down(
    spark: "SparkSession", load: "Callable[..., DataFrame]", store: KnownStore, narrowed: bool
) -> None:
    def where(condition: str) -> "DataFrame":
        if narrowed:
            return read_where(spark, condition, path=str(store.root), topicPattern="Orders|Payments")
        return frame.where(condition)

    known = store.of("Orders") + store.of("Payments")
    frame = load(topicPattern="Orders|Payments")
    middle = (
        frame.where("topic = 'Orders' AND queueId = 0").orderBy("queueOffset").collect()[60].storeTimestamp
    )
    cases: list[tuple[str, Any]] = [
        ("topic = 'Orders'", lambda each: each.queue.topic == "Orders"),
        (
            "topic LIKE 'Pay%' AND queueId > 0",
            lambda each: each.queue.topic == "Payments" and each.queue.queue_id > 0,
        ),
        ("queueOffset >= 10 AND queueOffset < 20", lambda each: 10 <= each.queue_offset < 20),
        ("queueOffset IN (3, 90)", lambda each: each.queue_offset in (3, 90)),
        ("tags = 'paid'", lambda each: each.tags == "paid"),
        ("tags IN ('paid', 'created')", lambda each: each.tags in ("paid", "created")),
        ("queueId <= 1 AND tags = 'paid'", lambda each: each.queue.queue_id <= 1 and each.tags == "paid"),
        ("tags IS NULL", lambda each: each.tags is None),
        ("NOT tags = 'paid'", lambda each: each.tags not in (None, "paid")),
        ("keys = 'Orders-7 Orders-0'", lambda each: " ".join(each.keys) == "Orders-7 Orders-0"),
        (f"uniqKey = '{known[5].unique_id}'", lambda each: each.unique_id == known[5].unique_id),
        ("tags = 'paid' AND tags = 'created'", lambda each: False),
        ("queueId = 0 OR queueOffset = 1", lambda each: each.queue.queue_id == 0 or each.queue_offset == 1),
    ]
    for condition, holds in cases:
        assert where(condition).count() == sum(map(holds, known)), condition
    before, since = (where(f"storeTimestamp {sign} '{middle}'").count() for sign in ("<", ">="))
    assert before > 0
    assert since > 0
    assert before + since == len(known)


def test_a_condition_reduces_what_is_read(spark: "SparkSession", store: KnownStore) -> None:
    """Fewer tasks than the whole has show that the plan was narrowed."""
    options = {"path": str(store.root), "topic": "Orders", "maxRecordsPerPartition": "50"}
    narrow = read_where(spark, "queueId = 2 AND queueOffset < 50 AND rand(1) >= 0", **options)
    assert narrow.count() == 50
    assert narrow.rdd.getNumPartitions() == 1
    assert read_where(spark, "true", **options).rdd.getNumPartitions() > 4
    assert read_where(spark, "false", **options).count() == 0


def test_a_narrowed_frame_may_be_used_twice(spark: "SparkSession", store: KnownStore) -> None:
    frame = read_where(spark, "queueId <= 1", path=str(store.root), topic="Orders")
    zero, one = len(store.in_queue("Orders", 0)), len(store.in_queue("Orders", 1))
    assert frame.where("queueId = 0").count() == zero
    assert frame.count() == zero + one
    assert frame.where("queueId = 0").union(frame.where("queueId = 1")).count() == zero + one
    assert frame.alias("a").join(frame.alias("b"), ["queueId", "queueOffset"]).count() == zero + one


def test_push_down_is_refused(load: "Callable[..., DataFrame]") -> None:
    with pytest.raises(Exception, match=r"pushdown: .*read_where"):
        load(topic="Orders", pushDown="true")


def test_an_invalid_condition_is_spark_s_error(spark: "SparkSession", store: KnownStore) -> None:
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        read_where(spark, "nothing = 1", path=str(store.root), topic="Orders")


def test_a_scan_is_the_same_table(
    spark: "SparkSession", store: KnownStore, load: "Callable[..., DataFrame]"
) -> None:
    whole, loaded = scan(spark, path=str(store.root)), load()
    assert whole.schema == loaded.schema
    order = ["topic", "queueId", "queueOffset"]
    assert whole.orderBy(order).collect() == loaded.orderBy(order).collect()


def test_a_scan_takes_the_options_of_the_format(spark: "SparkSession", store: KnownStore) -> None:
    frame = scan(spark, path=str(store.root), topic="Orders", columns="queueOffset,body", MINPARTITIONS="4")
    assert frame.columns == ["queueOffset", "body"]
    assert frame.rdd.getNumPartitions() >= 4
    assert frame.where("queueOffset = 0").count() == len({each.queue.queue_id for each in store.of("Orders")})
    assert scan(spark, path=str(store.root), topic="Orders", tags="none").count() == 0


def test_a_scan_refuses_at_once(spark: "SparkSession", store: KnownStore) -> None:
    with pytest.raises(InvalidOption, match="columns"):
        scan(spark, path=str(store.root), columns="nothing")
    with pytest.raises(TopicNotFound, match="NoSuch"):
        scan(spark, path=str(store.root), topic="NoSuch")


def test_an_empty_range_has_no_rows(load: "Callable[..., DataFrame]") -> None:
    nowhere = load(topic="Orders", endingOffsets='{"Orders": {"broker-a": {"0": 0, "1": 0, "2": 0, "3": 0}}}')
    assert nowhere.count() == 0
    assert load(topic="Orders").where("queueId = 99").count() == 0


def test_a_narrow_schema_is_column_pruning(spark: "SparkSession", store: KnownStore, load: object) -> None:
    reader = spark.read.format("rocketmq").schema("queueOffset long, topic string").option("topic", "Orders")
    frame = reader.load(str(store.root))
    assert frame.columns == ["queueOffset", "topic"]
    assert frame.count() == len(store.of("Orders"))
    assert frame.agg({"queueOffset": "max"}).collect()[0][0] == max(
        k.queue_offset for k in store.of("Orders")
    )


def test_columns_may_be_named(load: "Callable[..., DataFrame]") -> None:
    frame = load(topic="Orders", columns="queueId,tags,storeTimestamp")
    assert [field.dataType.simpleString() for field in frame.schema] == ["int", "string", "timestamp"]
    assert frame.where("tags = 'paid'").count() > 0


def test_several_folders_and_sql_views(spark: "SparkSession", store: KnownStore, load: object) -> None:
    twice = (
        spark.read.format("rocketmq").option("topic", "Readings").load([f"{n}={store.root}" for n in "xy"])
    )
    assert {row.brokerName for row in twice.select("brokerName").distinct().collect()} == {"x", "y"}
    spark.sql(f"CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (path '{store.root}', topic 'Orders')")
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == len(store.of("Orders"))
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "Missing"}, "TopicNotFound"),
        ({"topik": "Orders"}, "topik: unknown option; did you mean topic"),
        ({"subscribe": "Orders"}, "subscribe: .*here it is topic"),
        ({"kafka.bootstrap.servers": "h:1"}, "here it is nameServer"),
        ({"topic": "Orders", "startingOffsets": '{"Orders": {"broker-a": {"0": 100000}}}'}, "DataLoss"),
        ({"topic": "Orders", "sql": "price >"}, "InvalidOption"),
    ],
)
def test_what_is_wrong_is_in_spark_s_error(
    load: "Callable[..., DataFrame]", options: dict[str, str], expected: str
) -> None:
    with pytest.raises(Exception, match=expected):
        load(**options).count()


def test_all_topics_that_people_made(load: "Callable[..., DataFrame]", store: KnownStore) -> None:
    found = {row["topic"]: row["count"] for row in load(columns="topic").groupBy("topic").count().collect()}
    assert found == {topic: len(store.of(topic)) for topic in TOPICS}


def test_a_golden_store_is_read_to_its_manifest(spark: "SparkSession", golden: Golden, load: object) -> None:
    options = {"topicPattern": "Golden.*", "columns": "topic,queueId,queueOffset,uniqKey,bodyCrc"}
    rows = spark.read.format("rocketmq").options(**options).load(f"b={golden.root}").collect()
    found = {(row.topic, row.queueId, row.queueOffset): (row.uniqKey, row.bodyCrc) for row in rows}
    expected = {
        (topic, queue["queueId"], message["queueOffset"]): (
            message["properties"].get("UNIQ_KEY"),
            message["bodyCrc"],
        )
        for topic, queue in golden.queues()
        if topic.startswith("Golden")
        for message in queue["messages"]
    }
    assert len(rows) == len(found)
    assert found == expected
