"""Streams in a session: checkpoints, triggers, progress, and what ends them."""

import json
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools import Cluster, GroupFollows, lag, register
from firearrow.spark_tools.plan.offsets import RECORDS
from tests.spark.stores import BROKER, KnownStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent
    from pyspark.sql.streaming.query import StreamingQuery


class Stream:
    """One query with its checkpoint, run repeatedly; `batches` are the bodies that arrived, by micro-batch."""

    def __init__(self, spark: "SparkSession", folder: Path, **options: str) -> None:
        register(spark)
        self.spark, self.folder, self.options = spark, folder, options
        self.batches: list[list[bytes]] = []

    def run(self, name: str | None = None, **more: str) -> "StreamingQuery":
        """Read what there is now, to its end."""
        options = {"startingOffsets": "earliest", "columns": "body", **self.options, **more}
        writer = self.spark.readStream.format("rocketmq").options(**options).load().writeStream
        writer = writer.queryName(name) if name else writer
        query = (
            writer.foreachBatch(self._take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return query

    def bodies(self) -> list[bytes]:
        return sorted(body for batch in self.batches for body in batch)

    def _take(self, frame: "DataFrame", _: int) -> None:
        self.batches.append([bytes(row.body) for row in frame.collect()])


@pytest.fixture
def send(broker: LocalBroker) -> Callable[[str, int, int], None]:
    """`send(topic, first, count)`: bodies are numbers, round robin over two queues."""

    def send(topic: str, first: int, count: int) -> None:
        with blocking.Producer("streams", name_server=broker.name_server) as producer:
            for number in range(first, first + count):
                producer.send(Message(topic, b"%05d" % number), queue=MessageQueue(topic, BROKER, number % 2))

    return send


@pytest.fixture(params=["path", "nameServer"])
def source(request: pytest.FixtureRequest, broker: LocalBroker) -> dict[str, str]:
    """Both sources of the same running broker."""
    where = {"path": f"{BROKER}={broker.store}", "nameServer": broker.name_server}
    return {request.param: where[request.param]}


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(first, end)]


def test_a_stream_goes_on_from_its_checkpoint(
    spark: "SparkSession",
    source: dict[str, str],
    topics: Callable[..., str],
    send: Callable[[str, int, int], None],
    tmp_path: Path,
) -> None:
    topic = topics(2)
    send(topic, 0, 30)
    stream = Stream(spark, tmp_path, topic=topic, **source)
    query = stream.run()
    assert stream.bodies() == numbers(0, 30)
    progress = query.lastProgress
    assert progress is not None
    assert lag(progress).messages == 0
    assert set(lag(progress).by_queue) == {MessageQueue(topic, BROKER, 0), MessageQueue(topic, BROKER, 1)}
    stream.run()
    assert len(stream.bodies()) == 30
    send(topic, 30, 11)
    query = stream.run(maxOffsetsPerTrigger="5")
    assert stream.bodies() == numbers(0, 41)
    assert [lag(progress).messages for progress in query.recentProgress if progress.numInputRows] == [6, 1, 0]
    assert [len(batch) for batch in stream.batches[-3:]] == [5, 5, 1]


def test_each_message_comes_once_while_it_is_written(
    spark: "SparkSession",
    source: dict[str, str],
    topics: Callable[..., str],
    send: Callable[[str, int, int], None],
    tmp_path: Path,
) -> None:
    """Batches that Spark plans as fast as it can, with a concurrent producer."""
    topic = topics(2)
    stream = Stream(spark, tmp_path, topic=topic, **source)
    options = {"startingOffsets": "earliest", "columns": "body", "topic": topic, **source}
    frame = spark.readStream.format("rocketmq").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(stream._take).option("checkpointLocation", str(tmp_path / "c")).start()
    )
    try:
        for first in range(0, 200, 40):
            send(topic, first, 40)
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.bodies() == numbers(0, 200)


def test_a_checkpoint_ahead_of_the_log_is_loss(
    spark: "SparkSession", store: KnownStore, broker: LocalBroker, tmp_path: Path
) -> None:
    """As when a store was replaced by an older copy: the same name, fewer messages."""
    stream = Stream(spark, tmp_path, topic="Orders")
    stream.run(path=str(store.root))
    assert len(stream.bodies()) == len(store.of("Orders"))
    fewer = tmp_path / "fewer"
    with LocalBroker(fewer, settings={"brokerName": BROKER}) as running:
        with blocking.Admin(name_server=running.name_server) as admin:
            admin.create_topic("Orders", 4)
        with pytest.raises(
            Exception, match=r"DataLoss: .* Orders@broker-a:0\[0\.\.\d+\): the queue now ends at 0"
        ):
            stream.run(path=f"{BROKER}={fewer}")
        stream.run(path=f"{BROKER}={fewer}", failOnDataLoss="false")
    assert len(stream.bodies()) == len(store.of("Orders"))


class CommitRecorder(GroupFollows):
    """Prints which end it has committed."""

    def __init__(self, target: Cluster, group: str, query_name: str) -> None:
        super().__init__(target, group, query_name)
        self.ends: Queue[Any] = Queue()

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        super().onQueryProgress(event)
        end = json.loads(event.progress.sources[0].endOffset or "{}")
        end.pop(RECORDS, None)
        self.ends.put(end)


def test_a_group_follows_the_stream(
    spark: "SparkSession",
    broker: LocalBroker,
    topics: Callable[..., str],
    send: Callable[[str, int, int], None],
    tmp_path: Path,
) -> None:
    topic = topics(2)
    send(topic, 0, 20)
    with blocking.Admin(name_server=broker.name_server) as admin:
        for group in ("follows", "late"):
            admin.create_group(f"{group}-{topic}")
    listener = CommitRecorder(Cluster.of({"nameServer": broker.name_server}), f"follows-{topic}", topic)
    spark.streams.addListener(listener)
    try:
        where = {"nameServer": broker.name_server, "commitGroup": f"late-{topic}"}
        Stream(spark, tmp_path, topic=topic, **where).run(topic, maxOffsetsPerTrigger="10")
        while listener.ends.get(timeout=30) != {topic: {BROKER: {"0": 10, "1": 10}}}:
            pass
    finally:
        spark.streams.removeListener(listener)
    assert read_by(broker, f"follows-{topic}", topic) == [10, 10]
    assert read_by(broker, f"late-{topic}", topic) == [5, 5]


def read_by(broker: LocalBroker, group: str, topic: str) -> list[int | None]:
    with blocking.Admin(name_server=broker.name_server) as admin:
        return [admin.offset(group, MessageQueue(topic, BROKER, queue_id)) for queue_id in range(2)]
