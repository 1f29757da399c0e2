"""Copying a micro-batch, without a session: its frame is a list of rows, tasks run in this process."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow.client import blocking
from firearrow.client.base.errors import NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import DataLoss, InvalidOption, SendFailed, SparkToolsError
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.ranges import row_of
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments
from firearrow.spark_tools.jobs.checkpoint import InvalidCheckpoint, checkpoint
from firearrow.spark_tools.jobs.copy_ import (
    BatchArguments,
    is_wanted,
    routes,
    sentence_of,
    stream_options,
    work,
)
from firearrow.spark_tools.jobs.copy_task import MicroBatchCopier, Stopped, range_number
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting
from firearrow.spark_tools.jobs.rate_limit import RateLimits
from firearrow.spark_tools.jobs.report import Report
from firearrow.spark_tools.jobs.send_task import SendTask
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from tests.spark.in_process_context import InProcessSparkContext
from tests.spark.replaying import bodies
from tests.spark.stores import BROKER, SETTINGS, KnownStore


@dataclass
class Row:
    part: QueueRange
    gone: str | None = None

    def asDict(self) -> dict[str, Any]:
        return row_of(self.part, self.gone)


class Frame:
    def __init__(self, *parts: QueueRange, gone: Sequence[QueueRange] = ()) -> None:
        self.rows = [*map(Row, parts), *(Row(part, "expired") for part in gone)]
        self.sparkSession = self
        self.sparkContext = InProcessSparkContext()

    def collect(self) -> list[Row]:
        return self.rows


def part(queue_id: int, start: int, end: int, topic: str = "Orders") -> QueueRange:
    return QueueRange(MessageQueue(topic, BROKER, queue_id), start, end, end - start)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalBroker]:
    root = tmp_path / "target" / BROKER
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS) as running:
        yield running


def copying(
    store: KnownStore,
    target: LocalBroker,
    folder: Path,
    queues: str | None = None,
    *,
    create_topics: bool = True,
    timeout_s: float = 20,
) -> MicroBatchCopier:
    source = SourceArguments(path=[str(store.root)], queues=queues)
    to = TargetArguments(target=target.name_server, create_topics=create_topics)
    running = RunArguments(timeout_s=timeout_s)
    with checkpoint(folder, "copy", {}, list) as held:
        report = Report(job="copy", id=held.id, source="", target="")
        return MicroBatchCopier(
            job_checkpoint=held,
            report=report,
            is_wanted=partial(is_wanted, source),
            routes=partial(routes, source.message_source(timeout_s), to, running, report),
            work=partial(work, source, to, running, held, True),
        )


def known(store: KnownStore, queue_id: int, start: int, end: int) -> list[bytes]:
    return [each.body for each in store.in_queue("Orders", queue_id)[start:end] if each.packed is None]


def test_ranges_arrive_in_their_queues_in_order_and_are_counted(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    each = copying(store, target, tmp_path / "c")
    each(Frame(part(0, 0, 30), part(2, 10, 60)), 0)  # type: ignore[arg-type]
    each(Frame(part(0, 30, 50)), 1)  # type: ignore[arg-type]
    assert bodies(target.store, "Orders") == {0: known(store, 0, 0, 50), 2: known(store, 2, 10, 60)}
    assert each.report.totals["messages"] == 100
    assert str(each) == "2 micro-batches, 100 messages"
    assert each.report.notes == [f"topic Orders was made with 4 queues at {BROKER}"]


def test_a_micro_batch_that_is_run_again_sends_nothing_twice(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    frame = Frame(part(0, 0, 30), part(1, 0, 30))
    copying(store, target, tmp_path / "c")(frame, 7)  # type: ignore[arg-type]
    copying(store, target, tmp_path / "c")(frame, 7)  # type: ignore[arg-type]
    assert {number: len(found) for number, found in bodies(target.store, "Orders").items()} == {0: 30, 1: 30}


def test_another_range_under_the_same_number_is_another_range() -> None:
    numbers = {
        range_number(part(*arguments)).number
        for arguments in ((0, 0, 30), (0, 1, 30), (0, 0, 31), (1, 0, 30))
    }
    assert len(numbers) == 4
    assert range_number(part(0, 0, 30)) == range_number(part(0, 0, 30))


def test_marks_of_older_micro_batches_go(store: KnownStore, target: LocalBroker, tmp_path: Path) -> None:
    each = copying(store, target, tmp_path / "c")
    for batch in (8, 9, 10):
        each(Frame(part(0, batch, batch + 1)), batch)  # type: ignore[arg-type]
    assert [path.name for path in (tmp_path / "c" / "sent").iterdir()] == ["10"]


def test_queues_that_are_not_wanted_stay(store: KnownStore, target: LocalBroker, tmp_path: Path) -> None:
    copying(store, target, tmp_path / "c", queues="1-3")(Frame(part(0, 0, 9), part(1, 0, 9)), 0)  # type: ignore[arg-type]
    assert bodies(target.store, "Orders").keys() == {1}


def test_a_target_with_fewer_queues_keeps_the_order_of_each_source_queue(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    with blocking.Admin(name_server=target.name_server) as admin:
        admin.create_topic("Orders", 2)
    each = copying(store, target, tmp_path / "c")
    each(Frame(*(part(number, 0, 20) for number in range(4))), 0)  # type: ignore[arg-type]
    found = bodies(target.store, "Orders")
    for number in range(4):
        wanted = known(store, number, 0, 20)
        assert [body for body in found[number % 2] if body in wanted] == wanted
    assert len(each.report.notes) == 2
    assert each.report.notes[0].startswith("other queue id: Orders@")


def test_what_was_gone_when_it_was_planned_is_counted_and_named(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    each = copying(store, target, tmp_path / "c", queues="0-1")
    each(Frame(part(0, 7, 9), gone=[part(0, 0, 7), part(3, 0, 5)]), 0)  # type: ignore[arg-type]
    each(Frame(gone=[part(1, 0, 3)]), 1)  # type: ignore[arg-type]
    totals = each.report.totals
    assert (totals["messages"], totals["lost"], totals["lost_ranges"]) == (2, 10, 2)
    assert each.report.lost == {f"{part(0, 0, 7)}: expired": 7, f"{part(1, 0, 3)}: expired": 3}
    assert bodies(target.store, "Orders") == {0: known(store, 0, 7, 9)}


def test_nothing_is_begun_once_it_was_stopped(store: KnownStore, target: LocalBroker, tmp_path: Path) -> None:
    each = copying(store, target, tmp_path / "c")
    assert each.stop(0)
    with pytest.raises(Stopped):
        each(Frame(part(0, 0, 9)), 0)  # type: ignore[arg-type]
    assert each.stopping
    assert each.batches == 0


def test_a_topic_that_the_target_has_not_ends_it_with_a_sentence(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    with pytest.raises(SparkToolsError, match=r"topic Orders: .*--create-topics creates it"):
        copying(store, target, tmp_path / "c", create_topics=False)(Frame(part(0, 0, 9)), 0)  # type: ignore[arg-type]


def test_a_broker_that_is_away_ends_it_and_what_was_sent_is_not_sent_again(
    store: KnownStore, target: LocalBroker, tmp_path: Path
) -> None:
    each = copying(store, target, tmp_path / "c", timeout_s=0.5)
    each(Frame(part(0, 0, 20)), 0)  # type: ignore[arg-type]
    target.kill()
    with pytest.raises(SendFailed, match=BROKER):
        each(Frame(part(0, 20, 40)), 1)  # type: ignore[arg-type]
    target.start()
    copying(store, target, tmp_path / "c")(Frame(part(0, 20, 40)), 1)  # type: ignore[arg-type]
    assert bodies(target.store, "Orders")[0] == known(store, 0, 0, 40)


def test_the_stream_gets_its_options_from_the_arguments() -> None:
    source = SourceArguments(
        name_server="h:1",
        settings=["rocketmq.useTLS=true"],
        topics=["B", "A"],
        since="1970-01-01T00:00:01Z",
        fail_on_data_loss=False,
        group="tools",
    )
    assert stream_options(
        source, BatchArguments(start="latest", batch_messages=5), RunArguments(timeout_s=7.5)
    ) == {
        "startingOffsets": "latest",
        "failOnDataLoss": "false",
        "maxBytesPerTrigger": "256m",
        "topic": "A,B",
        "rocketmq.useTLS": "true",
        "nameServer": "h:1",
        "startingTimestamp": "1000",
        "maxOffsetsPerTrigger": "5",
        "pollTimeout": "7500ms",
        "group": "tools",
    }
    stores = SourceArguments(path=["/a", "x=/b"], pattern="T.*")
    options = stream_options(stores, BatchArguments(), RunArguments())
    assert (options["path"], options["topicPattern"]) == ('["/a","x=/b"]', "T.*")


def test_workers_wait_and_pull_as_the_arguments_say(tmp_path: Path) -> None:
    source = SourceArguments(name_server="h:1", group="tools")
    to, running = TargetArguments(target="t:1", rate=100, bytes_rate=1000), RunArguments(timeout_s=7.5)
    with checkpoint(tmp_path / "c", "copy", {}, list) as held:
        made = work(source, to, running, held, True, QueueRouting({}), 4)
    assert isinstance(made, SendTask)
    assert made.message_source == BrokerSource(Cluster(name_server="h:1"), "tools", timeout_s=7.5)
    assert (made.timeout_s, made.rates) == (7.5, RateLimits(25, 250))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"until": "2026-01-01"}, "--until: a copy continues and has no such end; replay copies a part"),
        ({"offsets": "{}"}, "--offsets: a copy continues"),
        ({"by_index": True}, "--by-index: a copy reads all that comes"),
        ({"path": None}, "--path or --namesrv"),
        ({"queues": "x"}, "--queues"),
    ],
)
def test_what_a_copy_cannot_do(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        stream_options(SourceArguments(**{"path": ["/a"], **given}), BatchArguments(), RunArguments())


def test_paces_that_cannot_be() -> None:
    with pytest.raises(InvalidOption, match="--start: 'now'; expected earliest or latest"):
        BatchArguments(start="now").check()
    with pytest.raises(InvalidOption, match="--every: -1 is not within"):
        BatchArguments(every_s=-1).check()
    with pytest.raises(InvalidOption, match="--batch-messages: 0; expected at least 1"):
        BatchArguments(batch_messages=0).check()
    with pytest.raises(InvalidOption, match="--batch-bytes='many': expected 1 to"):
        BatchArguments(batch_bytes="many").check()


def test_spark_s_error_becomes_our_sentence_again() -> None:
    output = "Traceback\nfirearrow.spark_tools.base.errors.DataLoss: T@b:0[1..2) is gone\n  at java"
    error = sentence_of(output)
    assert isinstance(error, DataLoss)
    assert str(error) == "T@b:0[1..2) is gone"
    assert str(sentence_of("[STREAM_FAILED] what\nelse")) == "the stream ended: [STREAM_FAILED] what"


REFUSED = [
    StoreUnreadable("/s: no folder of a store"),
    InvalidCheckpoint("/c: is of another job"),
    InvalidOption("topic: no"),
    SendFailed("the broker is away"),
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda error: type(error).__name__)
def test_every_refusal_keeps_its_kind_and_sentence(refused: Exception) -> None:
    try:
        try:
            raise NoRoute("behind it")
        except NoRoute as cause:
            raise refused from cause
    except type(refused):
        error = sentence_of(f"[STREAM_FAILED] Query [id] failed: {traceback.format_exc()}\n\tat org.apache")
    assert type(error) is type(refused)
    assert str(error) == str(refused)


def test_an_error_of_ours_that_is_no_refusal_is_not_taken_for_one() -> None:
    error = sentence_of("[STREAM_FAILED] Q\nfirearrow.client.errors.NoRoute: nobody\nValueError: a fault\n")
    assert str(error) == "the stream ended: ValueError: a fault"


def test_the_route_of_a_queue_never_changes(store: KnownStore, target: LocalBroker, tmp_path: Path) -> None:
    each = copying(store, target, tmp_path / "c")
    asked: list[Sequence[MessageQueue]] = []
    answers = iter(
        [
            {part(0, 0, 1).queue: MessageQueue("Orders", "a", 0)},
            {part(number, 0, 1).queue: MessageQueue("Orders", "b", number) for number in range(2)},
        ]
    )
    each.routes = lambda queues: asked.append(queues) or next(answers)  # type: ignore[func-returns-value]
    assert each._routing({part(0, 0, 1).queue}).table[part(0, 0, 1).queue].broker_name == "a"
    table = each._routing({part(0, 0, 1).queue, part(1, 0, 1).queue}).table
    assert [table[part(number, 0, 1).queue].broker_name for number in range(2)] == ["a", "b"]
    each._routing({part(1, 0, 1).queue})
    assert len(asked) == 2
