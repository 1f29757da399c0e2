"""The sink of streams in a session: what a micro-batch writes to the target, and commits for a group at the source."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.spark_source_to_sink import paid_orders
from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools import register
from firearrow.spark_tools.base.provenance import Provenance
from tests.spark.replaying import bodies, stored
from tests.spark.stores import BROKER
from tests.spark.waiting import await_some

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def send(broker: LocalBroker, topic: str, first: int, count: int) -> None:
    with blocking.Producer("streams", name_server=broker.name_server) as producer:
        for number in range(first, first + count):
            producer.send(Message(topic, b"%05d" % number), queue=MessageQueue(topic, BROKER, number % 2))


@pytest.fixture
def load(spark: "SparkSession", broker: LocalBroker) -> "Callable[..., DataFrame]":
    register(spark)

    def load(topic: str) -> "DataFrame":
        options = {
            "nameServer": broker.name_server,
            "topic": topic,
            "startingOffsets": "earliest",
            "minPartitions": "2",
        }
        return spark.readStream.format("rocketmq").options(**options).load()

    return load


def drain(frame: "DataFrame", broker: LocalBroker, checkpoint: Path, **options: str) -> None:
    """What there is now goes to the sink."""
    given = {"nameServer": broker.name_server, "checkpointLocation": str(checkpoint), **options}
    query = frame.writeStream.format("rocketmq").options(**given).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def group_of(broker: LocalBroker, name: str) -> str:
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.create_group(name)
    return name


def committed(broker: LocalBroker, group: str, topic: str) -> list[int | None]:
    with blocking.Admin(name_server=broker.name_server) as admin:
        return [admin.offset(group, MessageQueue(topic, BROKER, number)) for number in range(2)]


def test_a_stream_goes_on_from_its_checkpoint_and_a_group_follows_it_to_the_end(
    load: "Callable[[str], DataFrame]", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    source, target, group = topics(2), topics(2), group_of(broker, "followers")
    send(broker, source, 0, 50)
    options = {"topic": target, "commitGroup": group, "provenance": "copy"}
    drain(load(source), broker, tmp_path, **options)
    assert committed(broker, group, source) == [25, 25]
    send(broker, source, 50, 10)
    drain(load(source), broker, tmp_path, **options)
    assert bodies(broker.store, target) == bodies(broker.store, source)
    assert committed(broker, group, source) == [30, 30]


def test_a_group_never_goes_back(
    load: "Callable[[str], DataFrame]", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    source, group = topics(2), group_of(broker, "ahead")
    send(broker, source, 0, 20)
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.update_offset(group, MessageQueue(source, BROKER, 0), 9)
    drain(load(source).where("queueOffset < 5"), broker, tmp_path, topic=topics(2), commitGroup=group)
    assert committed(broker, group, source) == [9, 5]


def test_a_micro_batch_that_is_run_again_sends_the_same_ids(
    load: "Callable[[str], DataFrame]", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    """Rows without ids: they are made of the query, the micro-batch and the row."""
    source, target, flag, name_server = topics(2), topics(2), tmp_path / "goes", broker.name_server
    send(broker, source, 0, 40)

    def guarded(body: bytes) -> bytes:
        if bytes(body) == b"00039" and not flag.exists():
            await_some(name_server, target)
            raise RuntimeError("not yet")
        return bytes(body)

    from pyspark.sql.functions import udf  # noqa: PLC0415 (a session is there)

    frame = load(source).select(udf(guarded, "binary", useArrow=False)("body").alias("body"))
    with pytest.raises(Exception, match="not yet"):
        drain(frame, broker, tmp_path / "checkpoint", topic=target)
    first = {
        record.body: record.properties["UNIQ_KEY"]
        for records in stored(broker.store, target).values()
        for record in records
    }
    flag.touch()
    drain(frame, broker, tmp_path / "checkpoint", topic=target)
    sent = [record for records in stored(broker.store, target).values() for record in records]
    ids = {(record.body, record.properties["UNIQ_KEY"]) for record in sent}
    assert len(first) >= 20
    assert set(first.items()) <= ids
    assert len(ids) == 40


def test_a_group_that_is_not_there_ends_the_stream_with_a_sentence(
    load: "Callable[[str], DataFrame]", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    source = topics(2)
    send(broker, source, 0, 1)
    with pytest.raises(Exception, match=f"commitGroup: {BROKER} has no group nobody; create it there"):
        drain(load(source), broker, tmp_path, topic=topics(2), commitGroup="nobody")


def test_a_silent_target_ends_the_stream_after_the_timeout(
    load: "Callable[[str], DataFrame]", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    source = topics(2)
    send(broker, source, 0, 1)
    with pytest.raises(Exception, match=r"no answer within 0\.25 s"):
        drain(load(source), broker, tmp_path, nameServer="127.0.0.1:1", topic="T", sendTimeout="250ms")


def test_the_example_moves_what_it_says(
    spark: "SparkSession", broker: LocalBroker, topics: Callable[..., str], tmp_path: Path
) -> None:
    register(spark)
    source, target = topics(2), topics(2)
    with blocking.Producer("streams", name_server=broker.name_server) as producer:
        for number in range(12):
            tags = "paid" if number % 3 == 0 else "new"
            queue = MessageQueue(source, BROKER, number % 2)
            producer.send(Message(source, b"%d" % number, tags=tags), queue=queue)
    paid_orders(spark, broker.name_server, source, target, str(tmp_path))
    assert bodies(broker.store, target) == {0: [b"0", b"6"], 1: [b"3", b"9"]}
    (record, *_) = stored(broker.store, target)[BROKER, 1]
    assert Provenance.of(record.properties) == Provenance("paid-orders", MessageQueue(source, BROKER, 1), 1)
