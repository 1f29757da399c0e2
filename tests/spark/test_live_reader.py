"""Reading live brokers: everything, once, in order; what does not match is filtered, wherever that happens."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from firearrow._native.columnar.record_spans import Spans
from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound, Unreachable
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.live.broker_source import GROUP, BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.pull_pipeline import PullAnswer, PullPipeline
from firearrow.spark_tools.live.reader import LiveReader
from tests.client.proxy import Detour
from tests.interop.peers import Peer
from tests.spark.background_loop import BackgroundLoop

ALL = MessageFilter()
MESSAGES = 500
TAGS = ("Aa", "BB", "other", None)
"""The first two have the same Java hash."""
_numbers = count(1)
Lost = list[tuple[QueueRange, str]]


@dataclass(frozen=True)
class Sent:
    topic: str
    queue: MessageQueue
    empty: MessageQueue

    @property
    def whole(self) -> QueueRange:
        return QueueRange(self.queue, 0, MESSAGES)


def send(name_server: str) -> Sent:
    """MESSAGES to one queue of a new topic of two."""
    topic = f"read-{os.getpid()}-{next(_numbers)}"
    with blocking.Admin(name_server=name_server) as admin:
        admin.create_topic(topic, 2)
        empty, queue = admin.queues(topic)
    with blocking.Producer("sends", name_server=name_server) as producer:
        for number in range(MESSAGES):
            properties = {"number": str(number), "half": "low" if number < MESSAGES // 2 else "high"}
            message = Message(
                topic,
                b"body %d" % number,
                tags=TAGS[number % 4],
                keys=[f"key-{number}"],
                properties=properties,
            )
            producer.send(message, queue=queue)
    return Sent(topic, queue, empty)


@pytest.fixture(scope="module")
def sent(peer: Peer) -> Sent:
    return send(peer.name_server)


@pytest.fixture
def reader(peer: Peer) -> Iterator[LiveReader]:
    with BrokerSource(Cluster(name_server=peer.name_server), news_s=0.2).open() as reader:
        yield reader


@pytest.fixture
def background_loop() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as running:
        yield running


def never(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part} is reported as lost: {why}")


def numbers(spans: Spans) -> list[int]:
    return [int(spans[index].body.removeprefix(b"body ")) for index in range(len(spans))]


def read(
    reader: LiveReader,
    part: QueueRange,
    message_filter: MessageFilter = ALL,
    *,
    lost: Lost | None = None,
    bytes_max: int = 1 << 20,
) -> list[int]:
    on_loss = never if lost is None else lambda gone, why: lost.append((gone, why))
    return [
        number
        for spans in reader.read(part, message_filter, on_loss, bytes_max=bytes_max)
        for number in numbers(spans)
    ]


# ---- what there is ----


def test_topics_queues_and_bounds(reader: LiveReader, sent: Sent) -> None:
    assert sent.topic in reader.topics()
    assert reader.queues(sent.topic) == [sent.empty, sent.queue]
    assert reader.bounds([sent.queue, sent.empty]) == {sent.queue: (0, MESSAGES), sent.empty: (0, 0)}
    assert reader.bounds([]) == {}


def test_a_missing_topic_is_named(reader: LiveReader) -> None:
    with pytest.raises(TopicNotFound, match="topic no-such-topic: no broker of 127"):
        reader.queues("no-such-topic")


def test_a_time_becomes_the_first_offset_that_was_stored_then_or_later(
    reader: LiveReader, sent: Sent
) -> None:
    windows = list(reader.read(sent.whole, ALL, never, bytes_max=1 << 30))
    stored = [spans.store_ms(index) for spans in windows for index in range(len(spans))]
    for ms in (0, stored[0], stored[MESSAGES // 2], stored[-1]):
        assert reader.offset_at(sent.queue, ms) == sum(each < ms for each in stored)
    assert reader.offset_at(sent.queue, stored[-1] + 1) == MESSAGES
    assert reader.offset_at(sent.empty, stored[0]) == 0


def test_sizes_come_from_the_records_themselves(reader: LiveReader, sent: Sent) -> None:
    exact = sum(spans.bytes for spans in reader.read(sent.whole, ALL, never, bytes_max=1 << 30))
    assert reader.bytes_of(sent.whole) == pytest.approx(exact, rel=0.1)
    assert reader.bytes_of(QueueRange(sent.queue, 5, 5)) == 0


def test_groups_are_returned_with_what_they_committed(peer: Peer, reader: LiveReader, sent: Sent) -> None:
    group = f"commits-{os.getpid()}-{next(_numbers)}"
    with blocking.Admin(name_server=peer.name_server) as admin:
        admin.create_group(group)
        admin.update_offset(group, sent.queue, 123)
    assert reader.groups()[group] == {sent.empty: 0, sent.queue: 123} or reader.groups()[group] == {
        sent.queue: 123
    }


# ---- records ----


def test_all_of_a_queue_comes_once_and_in_order(reader: LiveReader, sent: Sent) -> None:
    assert read(reader, sent.whole) == list(range(MESSAGES))


@pytest.mark.parametrize("bytes_max", [1, 3000, 20_000])
def test_windows_are_as_large_as_configured_or_one_answer(
    reader: LiveReader, sent: Sent, bytes_max: int
) -> None:
    windows = list(reader.read(sent.whole, ALL, never, bytes_max=bytes_max))
    assert [number for spans in windows for number in numbers(spans)] == list(range(MESSAGES))
    assert len(windows) > 3
    answer_max = 32 * 400
    assert all(spans.bytes < bytes_max + answer_max for spans in windows)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (7, 8), (31, 33), (100, 500), (499, 500), (5, 5), (9, 3)])
def test_a_range_is_exactly_that(reader: LiveReader, sent: Sent, start: int, end: int) -> None:
    assert read(reader, QueueRange(sent.queue, start, end)) == list(range(start, end))
    tagged = MessageFilter(tags=frozenset({"Aa"}))
    assert read(reader, QueueRange(sent.queue, start, end), tagged) == [
        n for n in range(start, end) if n % 4 == 0
    ]


@pytest.mark.parametrize(
    ("message_filter", "expected"),
    [
        (MessageFilter(tags=frozenset({"Aa"})), lambda n: n % 4 == 0),
        (MessageFilter(tags=frozenset({"BB", "other"})), lambda n: n % 4 in (1, 2)),
        (MessageFilter(tags=frozenset({"none such"})), lambda n: False),
        (MessageFilter(tags=frozenset({"a||b"})), lambda n: False),
        (MessageFilter(keys=frozenset({"key-3", "key-400"})), lambda n: n in (3, 400)),
        (MessageFilter(sql="number BETWEEN 20 AND 29 OR number = 450"), lambda n: 20 <= n < 30 or n == 450),
        (MessageFilter(sql="TAGS IS NULL AND half = 'low'"), lambda n: n % 4 == 3 and n < 250),
        (MessageFilter(sql="number < 100", tags=frozenset({"Aa"})), lambda n: n % 4 == 0 and n < 100),
        (MessageFilter(sql="number < 100", keys=frozenset({"key-3", "key-400"})), lambda n: n == 3),
        (MessageFilter(stored=(None, 1)), lambda n: False),
    ],
)  # fmt: skip
def test_only_what_is_chosen_comes(
    reader: LiveReader, sent: Sent, message_filter: MessageFilter, expected: Callable[[int], bool]
) -> None:
    assert read(reader, sent.whole, message_filter) == [n for n in range(MESSAGES) if expected(n)]


def test_without_sql_at_the_broker_it_is_evaluated_here(broker: LocalBroker) -> None:
    """This broker has `enablePropertyFilter` off, as brokers are by default."""
    there = send(broker.name_server)
    with BrokerSource(Cluster(name_server=broker.name_server)).open() as reader:
        assert read(reader, there.whole, MessageFilter(sql="number > 490")) == list(range(491, MESSAGES))


def test_an_invalid_expression_is_refused_with_its_position(reader: LiveReader, sent: Sent) -> None:
    with pytest.raises(InvalidOption, match="sql: 'number >' is not an SQL92 filter"):
        read(reader, sent.whole, MessageFilter(sql="number >"))


def test_reading_leaves_no_group_and_no_offset(peer: Peer, reader: LiveReader, sent: Sent) -> None:
    with blocking.Admin(name_server=peer.name_server) as admin:
        before = set(admin.groups())
        assert read(reader, sent.whole) == list(range(MESSAGES))
        assert set(admin.groups()) == before
        assert GROUP in before
        assert admin.offset(GROUP, sent.queue) is None


def test_a_range_that_is_broken_off_leaves_nothing(reader: LiveReader, sent: Sent) -> None:
    windows = reader.read(sent.whole, ALL, never, bytes_max=1)
    assert numbers(next(windows))[0] == 0
    windows.close()  # type: ignore[attr-defined]
    assert read(reader, sent.whole) == list(range(MESSAGES))


# ---- what is not there ----


def test_offsets_past_the_end_are_waited_for_and_then_lost_by_name(reader: LiveReader, sent: Sent) -> None:
    lost: Lost = []
    part = QueueRange(sent.queue, MESSAGES - 3, MESSAGES + 7)
    assert read(reader, part, lost=lost) == [497, 498, 499]
    ((gone, why),) = lost
    assert gone == QueueRange(sent.queue, MESSAGES, MESSAGES + 7)
    assert why == f"the queue ends at {MESSAGES} and no message came for 0.2 s"


def test_what_comes_while_it_is_waited_for_is_read(peer: Peer) -> None:
    there = send(peer.name_server)
    with BrokerSource(Cluster(name_server=peer.name_server), news_s=20).open() as reader:
        part = QueueRange(there.queue, MESSAGES - 1, MESSAGES + 1)
        windows = reader.read(part, ALL, never, bytes_max=1)
        assert numbers(next(windows)) == [499]
        with blocking.Producer("sends", name_server=peer.name_server) as producer:
            later = threading.Timer(
                0.3, producer.send, [Message(there.topic, b"body 500")], {"queue": there.queue}
            )
            later.start()
            assert numbers(next(windows)) == [500]
            later.join()


def test_a_range_far_past_the_end_is_lost_as_a_whole(reader: LiveReader, sent: Sent) -> None:
    lost: Lost = []
    part = QueueRange(sent.queue, 10_000, 10_005)
    assert read(reader, part, lost=lost) == []
    assert [gone for gone, _ in lost] == [part]
    assert lost[0][1].startswith(f"the queue ends at {MESSAGES}")


# ---- brokers and networks that fail ----


def test_connections_that_break_lose_nothing_and_repeat_nothing(
    peer: Peer, sent: Sent, background_loop: BackgroundLoop
) -> None:
    detour = background_loop.enter(Detour(peer))
    # one answer, some 8 KB, and a part of the next
    lifetimes = (9000 + broken * 1237 % 9000 for broken in count())
    background_loop.call(lambda: setattr(detour.broker, "lifetimes", lifetimes))
    with BrokerSource(Cluster(name_server=detour.name_server)).open() as reader:
        found = [n for spans in reader.read(sent.whole, ALL, never, bytes_max=1) for n in numbers(spans)]
    assert found == list(range(MESSAGES))
    assert detour.broker.accepted > 5


def test_a_broker_that_comes_back_goes_on_and_one_that_does_not_is_an_error(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker-a", settings={"brokerName": "broker-a"}) as broker:
        there = send(broker.name_server)
        message_source = BrokerSource(Cluster(name_server=broker.name_server), timeout_s=20)
        with message_source.open() as reader:
            windows = reader.read(there.whole, ALL, never, bytes_max=1)
            found = numbers(next(windows))
            broker.stop()
            broker.start()
            assert found + [n for spans in windows for n in numbers(spans)] == list(range(MESSAGES))
        with BrokerSource(Cluster(name_server=broker.name_server), timeout_s=0.5).open() as reader:
            windows = reader.read(there.whole, ALL, never, bytes_max=1)
            next(windows)
            broker.kill()
            with pytest.raises(Unreachable, match=rf"^{there.topic}@broker-a:1: "):
                list(windows)
            with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
                reader.topics()


def test_a_body_that_was_changed_is_lost_unless_it_is_wanted_as_it_is(
    reader: LiveReader, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own broker does not return such a record, so its file is changed."""
    given = PullPipeline.answer

    def answer(pulls: PullPipeline, queue_offset: int) -> PullAnswer:
        found = given(pulls, queue_offset)
        return found._replace(body=found.body.replace(b"body 250", b"body 999"))

    monkeypatch.setattr(PullPipeline, "answer", answer)
    lost: Lost = []
    assert read(reader, sent.whole, lost=lost) == [n for n in range(MESSAGES) if n != 250]
    assert lost == [(QueueRange(sent.queue, 250, 251), "the body of the record does not match its CRC")]
    as_it_is = read(reader, sent.whole, MessageFilter(check_crc=False))
    assert as_it_is == [999 if n == 250 else n for n in range(MESSAGES)]
