"""Streams over a real broker and its files: a topic that is recreated, queues that come back, a restored store."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import IdentifyingReader, QueueRange, Source
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from firearrow.spark_tools.plan.stream_offsets import StreamCursor
from tests.spark.stores import BROKER, SETTINGS

_numbers = count(1)


@pytest.fixture(params=["files", "brokers"])
def of(request: pytest.FixtureRequest) -> Callable[[LocalBroker], Source]:
    """Makes both kinds of source for the same broker."""

    def make(broker: LocalBroker) -> Source:
        if request.param == "files":
            return StoreSource((f"{BROKER}={broker.store}",))
        return BrokerSource(Cluster(name_server=broker.name_server), news_s=0.2)

    return make


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[blocking.Admin]:
    with blocking.Admin(name_server=broker.name_server) as admin:
        yield admin


@pytest.fixture(params=["again", "%RETRY%again"])
def topic(request: pytest.FixtureRequest) -> str:
    return f"{request.param}-{next(_numbers)}"


class Stream:
    """What a stream with a checkpoint reads, as numbers; a new process each time unless it is `running`."""

    def __init__(self, source: Source, topic: str, **options: str) -> None:
        self.source, self.checkpoint = source, ""
        given = {"nameServer": "unused", "topic": topic, "startingOffsets": "earliest", **options}
        self.options = SourceOptions.of(given, STREAM)
        self.lost: list[tuple[QueueRange, str]] = []

    def cursor(self) -> StreamCursor:
        return StreamCursor(self.source, self.options, lost=lambda *each: self.lost.append(each))

    def read(self, running: StreamCursor | None = None) -> list[int]:
        cursor = running or self.cursor()
        if running is not None:
            cursor._looked_at = None  # the bounds of just now are too old
        start = StreamOffsets.of_json(json.loads(self.checkpoint)) if self.checkpoint else cursor.first()
        end = StreamOffsets.of_json(json.loads(json.dumps(cursor.end(start, True).json())))
        found: list[int] = []
        with self.source.open() as reader:
            for split in cursor.parts(start, end):
                for part in split:
                    for spans in reader.read(part, MessageFilter(), self._fail, bytes_max=1 << 20):
                        found += [int(spans[index].body) for index in range(len(spans))]
        self.checkpoint = json.dumps(end.json())
        return sorted(found)

    @property
    def gone(self) -> int:
        return sum(len(part) for part, _ in self.lost)

    def _fail(self, part: QueueRange, why: str) -> None:
        raise AssertionError(f"{part}: {why}")


def send(broker: LocalBroker, topic: str, first: int, end: int, queues: int = 1) -> None:
    with blocking.Producer("again", name_server=broker.name_server) as producer:
        for number in range(first, end):
            queue = MessageQueue(topic, BROKER, number % queues)
            producer.send(Message(topic, b"%d" % number), queue=queue).raise_for_status()


def recreate(admin: blocking.Admin, topic: str, queues: int = 1) -> None:
    admin.delete_topic(topic)
    admin.create_topic(topic, queues)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("messages", [4, 10, 16])
def test_a_topic_that_was_recreated_is_read_from_its_first_message(
    of: Callable[[LocalBroker], Source],
    broker: LocalBroker,
    admin: blocking.Admin,
    topic: str,
    messages: int,
    running: bool,
) -> None:
    admin.create_topic(topic, 1)
    send(broker, topic, 0, 10)
    stream = Stream(of(broker), topic)
    cursor = stream.cursor() if running else None
    assert stream.read(cursor) == list(range(10))
    recreate(admin, topic)
    send(broker, topic, 100, 100 + messages)
    assert stream.read(cursor) == list(range(100, 100 + messages))
    send(broker, topic, 200, 203)
    assert stream.read(cursor) == [200, 201, 202]
    assert stream.read(cursor) == []
    assert stream.gone == 0
    assert len(stream.lost) == 1


def test_a_topic_that_was_recreated_with_fewer_queues(
    of: Callable[[LocalBroker], Source], broker: LocalBroker, admin: blocking.Admin, topic: str
) -> None:
    admin.create_topic(topic, 4)
    send(broker, topic, 0, 20, queues=4)
    stream = Stream(of(broker), topic)
    assert stream.read() == list(range(20))
    recreate(admin, topic, 2)
    send(broker, topic, 100, 112, queues=2)
    assert stream.read() == list(range(100, 112))
    assert stream.read() == []
    assert stream.gone == 0


def test_queues_that_were_drained_are_taken_away_and_brought_back(
    of: Callable[[LocalBroker], Source], broker: LocalBroker, admin: blocking.Admin, topic: str
) -> None:
    admin.create_topic(topic, 4)
    send(broker, topic, 0, 20, queues=4)
    stream = Stream(of(broker), topic)
    assert stream.read() == list(range(20))
    admin.create_topic(topic, 2)
    send(broker, topic, 20, 24, queues=2)
    assert stream.read() == list(range(20, 24))
    assert stream.read() == []
    admin.create_topic(topic, 4)
    send(broker, topic, 24, 32, queues=4)
    assert stream.read() == list(range(24, 32))
    assert stream.lost == []


@pytest.mark.parametrize("more", [2, 9])
def test_a_store_that_was_restored_is_read_from_where_it_differs(
    of: Callable[[LocalBroker], Source], tmp_path: Path, more: int
) -> None:
    root = tmp_path / "now" / BROKER
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS) as broker:
        with blocking.Admin(name_server=broker.name_server) as admin:
            admin.create_topic("T", 1)
        send(broker, "T", 0, 10)
        assert broker.stop() == 0
    shutil.copytree(root, tmp_path / "backup")
    with LocalBroker(root, settings=SETTINGS) as broker:
        send(broker, "T", 10, 16)
        stream = Stream(of(broker), "T")
        assert stream.read() == list(range(16))
        assert broker.stop() == 0
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "backup", root)
    with LocalBroker(root, settings=SETTINGS) as broker:
        stream.source = of(broker)
        with pytest.raises(
            DataLoss, match=r"0\[10\.\.16\): the queue now ends at 10, before the stream's offset"
        ):
            stream.read()
        stream.lost.clear()
        send(broker, "T", 100, 100 + more)
        assert stream.read() == list(range(100, 100 + more))
        assert stream.gone == 0


def test_a_record_is_the_same_in_files_and_at_the_broker(broker: LocalBroker, admin: blocking.Admin) -> None:
    topic = f"same-{next(_numbers)}"
    admin.create_topic(topic, 2)
    before_ms = time.time_ns() // 1_000_000
    send(broker, topic, 0, 6)
    queue, empty = MessageQueue(topic, BROKER, 0), MessageQueue(topic, BROKER, 1)
    places = [(queue, 0), (queue, 5), (queue, 6), (queue, 1 << 40), (empty, 0), (empty, 3)]
    found = []
    for source in (
        StoreSource((f"{BROKER}={broker.store}",)),
        BrokerSource(Cluster(name_server=broker.name_server)),
    ):
        with source.open() as reader:
            assert isinstance(reader, IdentifyingReader)
            found.append(reader.record_ids(places))
    assert found[0] == found[1]
    first, last = found[0][:2]
    assert first is not None
    assert last is not None
    assert found[0][2:] == [None] * 4
    assert (first.queue_offset, last.queue_offset) == (0, 5)
    assert last.is_later_than(first)
    assert not first.is_later_than(last)
    assert before_ms <= first.store_ms <= last.store_ms
