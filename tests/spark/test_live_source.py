"""A table read from a live broker, without a session: its options in planning and reading."""

from collections.abc import Callable

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from firearrow.client import blocking
from firearrow.client.admin_api.records import GroupConfig
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import DataLoss, RequestRefused, TopicNotFound, Unreachable
from firearrow.spark_tools.datasource.source import RocketMQSource
from firearrow.spark_tools.datasource.stream import StreamReader
from tests.spark.stores import BROKER

SCHEMA = StructType(
    [
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
        StructField("tags", StringType()),
    ]
)


@pytest.fixture
def topic(broker: LocalBroker, topics: Callable[..., str]) -> str:
    """Two queues of 50 messages each, every fifth tagged `five`."""
    name = topics(2)
    with blocking.Producer("live-source", name_server=broker.name_server) as producer:
        for number in range(100):
            message = Message(name, b"%03d" % number, tags="five" if number % 5 == 0 else "other")
            message.properties["number"] = str(number)
            producer.send(message, queue=MessageQueue(name, BROKER, number % 2))
    return name


def read(broker: LocalBroker, **options: str) -> list[bytes]:
    source = RocketMQSource({"nameServer": broker.name_server, **options})
    reader = source.reader(SCHEMA)
    parts = reader.partitions()
    return sorted(row["body"] for part in parts for batch in reader.read(part) for row in batch.to_pylist())  # type: ignore[union-attr]


def test_a_live_topic_is_read_to_its_end(broker: LocalBroker, topic: str) -> None:
    assert read(broker, topic=topic) == [b"%03d" % number for number in range(100)]
    assert read(broker, topicPattern=topic, minPartitions="4", maxRecordsPerPartition="9") == read(
        broker, topic=topic
    )


def test_a_choice_is_made_at_the_broker_or_here(broker: LocalBroker, topic: str) -> None:
    fives = [b"%03d" % number for number in range(0, 100, 5)]
    assert read(broker, topic=topic, tags="five") == fives
    assert read(broker, topic=topic, sql="number < 10") == [b"%03d" % number for number in range(10)]
    assert read(broker, topic=topic, sql="number < 10", tags="five") == [b"000", b"005"]


def test_offsets_and_loss_at_a_broker(broker: LocalBroker, topic: str) -> None:
    offsets = '{"%s": {"%s": {"0": 48, "1": %d}}}'
    assert read(broker, topic=topic, startingOffsets=offsets % (topic, BROKER, -1)) == [b"096", b"098"]
    with pytest.raises(DataLoss, match=r":1\[50\.\.51\): beyond the end"):
        read(broker, topic=topic, startingOffsets=offsets % (topic, BROKER, 51))
    assert read(broker, assign=f'{{"{topic}": [1]}}', endingTimestamp="2050-01-01") == [
        b"%03d" % number for number in range(1, 100, 2)
    ]


def test_an_unknown_topic_is_named(broker: LocalBroker) -> None:
    with pytest.raises(TopicNotFound, match="NoSuchTopic"):
        read(broker, topic="NoSuchTopic")


def test_a_group_without_the_right_to_pull_is_refused(broker: LocalBroker, topic: str) -> None:
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.create_group(GroupConfig(group=f"barred-{topic}", consume_enabled=False))
    with pytest.raises(RequestRefused, match=f"barred-{topic}"):
        read(broker, topic=topic, group=f"barred-{topic}")
    assert len(read(broker, topic=topic)) == 100


def test_a_silent_broker_is_waited_for_until_the_timeout(fresh_broker: LocalBroker) -> None:
    options = {"nameServer": fresh_broker.name_server, "pollTimeout": "250ms"}
    with blocking.Producer("silence", name_server=fresh_broker.name_server) as producer:
        producer.send(Message("T", b"one"))
    reader = RocketMQSource({**options, "topic": "T"}).reader(SCHEMA)
    (part,) = reader.partitions()
    fresh_broker.kill()
    with pytest.raises(Unreachable, match=r"T@.*; given up after 0\.25 s"):
        list(reader.read(part))
    with pytest.raises(Unreachable, match=r"no answer within 0\.25 s"):
        reader.partitions()
    stream = RocketMQSource({**options, "topic": "T"}).streamReader(SCHEMA)
    assert isinstance(stream, StreamReader)
    with pytest.raises(Unreachable, match=r"no answer within 0\.25 s"):
        stream.initialOffset()
