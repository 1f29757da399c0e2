"""Brokers' answers to pulls in rare states: each ends in records, in a named loss, or in a clear error."""

import json
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import (
    DataLoss,
    InvalidOption,
    RequestRefused,
    SparkToolsError,
    TopicNotFound,
    Unreachable,
)
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.live.broker_source import GROUP, BrokerSource
from firearrow.spark_tools.live.client_link import SharedAdmin
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.pull_pipeline import BATCH_MAX, PIPELINE_MAX, BrokerFilter, PullPipeline
from tests.client.scripted import Answer, Scripted
from tests.spark.background_loop import BackgroundLoop
from tests.spark.record_bytes import record_bytes

ALL = MessageFilter()
QUEUE = MessageQueue("T", "a", 0)
FOUND, NOT_FOUND, AGAIN, MOVED = 0, 19, 20, 21
Lost = list[tuple[int, int, str]]


class Broker:
    """One queue with records [first, end) except `holes`; `rules` are used first. `asked`: offsets of pulls."""

    def __init__(self, first: int, end: int, each: Callable[[], int] = lambda: 10) -> None:
        self.first, self.end, self.each = first, end, each
        self.holes: set[int] = set()
        self.flags: dict[int, int] = {}
        self.asked: list[int] = []
        self.wanted: list[int] = []
        self.fields: list[dict[str, str]] = []
        self.rules: list[Callable[[RemotingCommand, int], Answer]] = []

    def answer(self, request: RemotingCommand) -> Answer:
        if request.code != RequestCode.PULL_MESSAGE:
            return request.answer()
        at = int(request.ext["queueOffset"])
        self.asked.append(at)
        self.fields.append(request.ext)
        if self.rules:
            return self.rules.pop(0)(request, at)
        return self.plain(request, at)

    def plain(self, request: RemotingCommand, at: int) -> Answer:
        if at < self.first:
            return self.respond(request, MOVED, self.first)
        if at >= self.end:
            return self.respond(request, NOT_FOUND if at == self.end else MOVED, self.end)
        stop = min(at + self.each(), at + int(request.ext["maxMsgNums"]), self.end)
        body = b"".join(
            record_bytes(b"%d" % n, queue_offset=n, topic="T", queue_id=0, sys_flag=self.flags.get(n, 0))
            for n in range(at, stop)
            if n not in self.holes
        )
        return self.respond(request, FOUND, stop, body)

    def respond(self, request: RemotingCommand, code: int, next_offset: int, body: bytes = b"") -> Answer:
        ext = {
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.first),
            "maxOffset": str(self.end),
            "suggestWhichBrokerId": "0",
        }
        return request.answer(code, "scripted", ext, body)


@pytest.fixture
def cluster() -> Iterator[Scripted]:
    with BackgroundLoop() as background_loop:
        yield background_loop.enter(Scripted("a"))


def put(cluster: Scripted, broker: Broker) -> Broker:
    cluster.brokers["a"].answer = broker.answer  # type: ignore[method-assign]
    return broker


def read(
    cluster: Scripted,
    start: int,
    end: int,
    *,
    message_filter: MessageFilter = ALL,
    lost: Lost | None = None,
    bytes_max: int = 1000,
    timeout_s: float = 5,
) -> list[int]:
    def on_loss(part: QueueRange, why: str) -> None:
        assert part.queue == QUEUE
        if lost is None:
            raise DataLoss(f"{part}: {why}")
        lost.append((part.start, part.end, why))

    message_source = BrokerSource(Cluster(name_server=cluster.name_server), timeout_s=timeout_s, news_s=0.1)
    with message_source.open() as reader:
        part = QueueRange(QUEUE, start, end)
        return [
            spans.queue_offset(index)
            for spans in reader.read(part, message_filter, on_loss, bytes_max=bytes_max)
            for index in range(len(spans))
        ]


def test_pulls_are_pipelined_where_brokers_answer_regularly(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 2000))
    assert read(cluster, 0, 2000) == list(range(2000))
    assert broker.asked == list(range(0, 2000, 10)), "no pull was wasted"
    assert {int(fields["maxMsgNums"]) for fields in broker.fields[:90]} == {BATCH_MAX}


def test_answers_of_all_sizes_fit_together(cluster: Scripted) -> None:
    chance = random.Random(5)
    for _ in range(5):
        broker = put(cluster, Broker(0, 3000, lambda: chance.choice((1, 7, 7, 7, 7, 7, 7, 7, 32))))
        assert read(cluster, 3, 2990) == list(range(3, 2990))
        assert len(broker.asked) < 2 * 3000 / 7 * 2


def test_one_alone_is_on_the_way_until_it_is_steady_and_never_too_many(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 10_000))
    link = SharedAdmin.acquire(Cluster(name_server=cluster.name_server))
    pulls = PullPipeline(link, QUEUE, 10_000, GROUP, BrokerFilter(), 5)
    broker.each = lambda: 10 if broker.asked[-1] < 250 else 4
    counts, at = [], 0
    while at < 260:
        at = pulls.answer(at).next
        pulls.ask(at)
        counts.append(len(pulls._asked))
    pulls.close()
    link.release()
    assert counts[:7] == [1, 1, 1, 2, 4, 8, 16]
    assert max(counts) == PIPELINE_MAX
    assert counts[25:] == [1, 1, 1], "not any more when it was foretold wrongly"


def test_what_was_deleted_before_the_range_is_lost_by_name(cluster: Scripted) -> None:
    put(cluster, Broker(50, 100))
    lost: Lost = []
    assert read(cluster, 20, 100, lost=lost) == list(range(50, 100))
    assert lost == [(20, 50, "the queue now begins at 50")]
    lost.clear()
    assert read(cluster, 20, 30, lost=lost) == []
    assert lost == [(20, 30, "the queue now begins at 50")]


def test_data_loss_ends_the_read_where_it_may_not_be(cluster: Scripted) -> None:
    put(cluster, Broker(50, 100))
    with pytest.raises(DataLoss, match=r"T@a:0\[20\.\.50\): the queue now begins at 50"):
        read(cluster, 20, 100)


def test_holes_in_answers_are_named(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 100))
    broker.holes = {0, 13, 14, 15, 29, 30, 99}
    lost: Lost = []
    assert read(cluster, 0, 100, lost=lost, bytes_max=1 << 20) == [
        n for n in range(100) if n not in broker.holes
    ]
    assert [(start, end) for start, end, _ in lost] == [(0, 1), (13, 16), (29, 30), (30, 31), (99, 100)]
    assert {why for _, _, why in lost} == {"the broker has no record of these offsets"}


def test_a_record_of_several_offsets_leaves_no_hole(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 30))
    broker.flags = {4: 0x80 | 0x40, 18: 0x80 | 0x40}
    broker.holes = {5, 6, 7, 19}
    assert read(cluster, 0, 30) == [n for n in range(30) if n not in broker.holes]


def test_holes_of_a_filter_are_none(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 100))
    broker.holes = set(range(0, 100, 3))
    broker.rules = [lambda request, at: broker.respond(request, AGAIN, 40)]
    tagged = MessageFilter(tags=frozenset({"x"}))
    assert read(cluster, 0, 100, message_filter=tagged) == [], "what has not the tag is left out here"
    assert broker.asked == [0, *range(40, 100, 10)]
    assert {fields["subscription"] for fields in broker.fields} == {"x"}


def test_passing_over_offsets_without_a_filter_is_a_loss(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 100))
    broker.rules = [lambda request, at: broker.respond(request, AGAIN, 40)]
    lost: Lost = []
    assert read(cluster, 10, 60, lost=lost) == list(range(40, 60))
    assert lost == [(10, 40, "the broker skips these offsets")]


@pytest.mark.parametrize("code", [NOT_FOUND, AGAIN, MOVED, FOUND])
def test_a_broker_that_never_gets_on_is_a_loss_in_time(cluster: Scripted, code: int) -> None:
    broker = put(cluster, Broker(0, 50))
    stuck = [lambda request, at: broker.respond(request, code, at)] * 100
    broker.rules = [broker.plain, *stuck]
    lost: Lost = []
    assert read(cluster, 0, 50, lost=lost) == list(range(10))
    assert [(start, end) for start, end, _ in lost] == [(10, 50)]


def test_an_offset_that_goes_backwards_is_no_way_back(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 50))
    broker.rules = [broker.plain, lambda request, at: broker.respond(request, FOUND, 0, record_bytes(b"x"))]
    assert read(cluster, 0, 50) == list(range(50))


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (16, RequestRefused, "T@a:0: 16 scripted"),
        (26, RequestRefused, "26"),
        (1, RequestRefused, "1 scripted"),
        (17, TopicNotFound, "17 scripted"),
        (23, InvalidOption, "sql: the broker cannot parse"),
    ],
)
def test_refusals_come_with_the_broker_s_words(
    cluster: Scripted, code: int, error: type[SparkToolsError], says: str
) -> None:
    broker = put(cluster, Broker(0, 50))
    broker.rules = [broker.plain, lambda request, at: broker.respond(request, code, 0)]
    with pytest.raises(error, match=says):
        read(cluster, 0, 50)


def test_sql_that_is_switched_off_in_the_middle_is_evaluated_here_and_nothing_comes_twice(
    cluster: Scripted,
) -> None:
    broker = put(cluster, Broker(0, 50))
    off = "The broker does not support consumer to filter message by SQL92"
    broker.rules = [broker.plain, broker.plain, lambda request, at: request.answer(1, off)]
    assert read(cluster, 0, 50, message_filter=MessageFilter(sql="none IS NULL"), bytes_max=1 << 20) == list(
        range(50)
    )
    assert [fields["expressionType"] for fields in broker.fields[:4]] == ["SQL92"] * 3 + ["TAG"]


def test_a_busy_broker_is_asked_again_and_one_that_stays_busy_is_an_error(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 50))
    busy = [lambda request, at: request.answer(2, "busy")]
    broker.rules = [broker.plain, *busy, broker.plain, *busy]
    assert read(cluster, 0, 50) == list(range(50))
    broker.rules = busy * 1000
    with pytest.raises(Unreachable, match=r"T@a:0: a: 2 busy"):
        read(cluster, 0, 50, timeout_s=0.3)


def test_silence_is_an_error_in_time(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 50))
    broker.rules = [broker.plain] + [lambda request, at: None] * 1000
    with pytest.raises(Unreachable, match="no answer within"):
        read(cluster, 0, 50, timeout_s=0.2)


@pytest.mark.parametrize(
    "spoil", [lambda body: body[:-1], lambda body: b"x" * 100, lambda body: body + b"\0"]
)
def test_bodies_that_are_no_records_are_refused(cluster: Scripted, spoil: Callable[[bytes], bytes]) -> None:
    broker = put(cluster, Broker(0, 50))

    def spoilt(request: RemotingCommand, at: int) -> Answer:
        found = broker.plain(request, at)
        assert found is not None
        found.body = spoil(found.body)
        return found

    broker.rules = [broker.plain, spoilt]
    with pytest.raises(
        RequestRefused, match=r"T@a:0\[0\.\.50\): cannot decode the broker's response: no whole record"
    ):
        read(cluster, 0, 50)


@pytest.mark.parametrize("ext", [{}, {"nextBeginOffset": "x", "minOffset": "0", "maxOffset": "0"}])
def test_answers_without_their_fields_are_refused(cluster: Scripted, ext: dict[str, str]) -> None:
    broker = put(cluster, Broker(0, 50))
    broker.rules = [lambda request, at: request.answer(0, None, ext)]
    with pytest.raises(RequestRefused, match="a: cannot decode a response: "):
        read(cluster, 0, 50)


def test_a_logical_queue_that_moved_is_refused(cluster: Scripted) -> None:
    broker = put(cluster, Broker(0, 50))

    def moved(request: RemotingCommand, at: int) -> Answer:
        found = broker.plain(request, at)
        assert found is not None
        found.ext["offsetDelta"] = "100"
        return found

    broker.rules = [moved]
    with pytest.raises(RequestRefused, match="topic T is static and its queue 0 was moved"):
        read(cluster, 0, 50)


def test_a_topic_without_a_route_is_an_error(cluster: Scripted) -> None:
    put(cluster, Broker(0, 50))
    cluster.known = False
    with pytest.raises(SparkToolsError, match="T"):
        read(cluster, 0, 50, timeout_s=0.2)


class WithSlave(Scripted):
    """`b` is the slave of `a` in the routes."""

    def _route(self, request: RemotingCommand) -> Answer:
        answer = super()._route(request)
        if answer is not None and answer.body:
            route = json.loads(answer.body)
            addresses = {"0": self.brokers["a"].address, "1": self.brokers["b"].address}
            route["brokerDatas"] = [{"brokerName": "a", "brokerAddrs": addresses, "cluster": "c"}]
            route["queueDatas"] = route["queueDatas"][:1]
            answer.body = json.dumps(route).encode()
        return answer


def test_a_slave_that_the_master_suggests_is_asked_and_the_master_when_it_fails() -> None:
    master, slave = Broker(0, 100), Broker(0, 100)

    def suggests(broker: Broker, request: RemotingCommand) -> Answer:
        answer = Broker.answer(broker, request)
        if answer is not None and request.code == RequestCode.PULL_MESSAGE:
            answer.ext["suggestWhichBrokerId"] = "1"
        return answer

    with BackgroundLoop() as background_loop:
        cluster = background_loop.enter(WithSlave("a", "b"))
        for name, broker in (("a", master), ("b", slave)):
            cluster.brokers[name].answer = partial(suggests, broker)  # type: ignore[method-assign]
        slave.rules = [slave.plain] * 4 + [lambda request, at: request.answer(14, "ends")]
        assert read(cluster, 0, 100) == list(range(100))
    assert master.asked[0] == 0
    assert slave.asked[:5] == [10, 20, 30, 40, 50]
    assert master.asked[1] == slave.asked[4], "what the slave refused is asked of the master"


def test_a_forked_process_has_separate_connections(cluster: Scripted) -> None:
    """As Spark's workers are created."""
    put(cluster, Broker(0, 20))
    assert read(cluster, 0, 20) == list(range(20))
    child = multiprocessing.get_context("fork").Process(target=read_in_child, args=(cluster.name_server,))
    child.start()
    child.join(20)
    assert child.exitcode == 0


def read_in_child(name_server: str) -> None:
    with BrokerSource(Cluster(name_server=name_server)).open() as reader:
        found = list(reader.read(QueueRange(QUEUE, 0, 20), ALL, never, bytes_max=1))
    os._exit(0 if sum(map(len, found)) == 20 else 1)


def never(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part} is reported as lost: {why}")
