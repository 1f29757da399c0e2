"""Reading a compaction topic from its broker: it is right that offsets have no message."""

from pathlib import Path

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from tests.integration.test_compaction_topics import (
    TOPIC,
    await_compaction,
    broker_on,
    create,
    fill,
    newest,
    read_all,
)
from tests.support.eventually import eventually


def never(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part} is reported as lost: {why}")


def test_only_the_newest_messages_are_read(tmp_path: Path) -> None:
    with broker_on(tmp_path / "store", brokerName="b") as broker, broker.connect() as client:
        create(client)
        fill(client, 0, 100)
        left = newest(range(100), 7, await_compaction(broker.store, 80))
        eventually(lambda: [record.queue_offset for record in read_all(client)] == left, 10)
        assert broker.name_server is not None
        cluster = Cluster(name_server="{}:{}".format(*broker.name_server))
        with BrokerSource(cluster, news_s=0.2).open() as reader:
            queue = MessageQueue(TOPIC, "b", 0)
            assert reader.bounds([queue])[queue] == (left[0], 100)
            windows = reader.read(QueueRange(queue, 0, 100), MessageFilter(), never, bytes_max=1 << 20)
            found = [spans.queue_offset(n) for spans in windows for n in range(len(spans))]
        assert found == left
