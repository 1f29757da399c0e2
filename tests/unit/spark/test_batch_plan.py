"""What one load reads, planned over a log in memory."""

from dataclasses import replace

import pytest

from firearrow.spark_tools.base.errors import DataLoss, InvalidOption, TopicNotFound
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.plan.splits import InputSplit
from tests.spark.fakes import FakeLog, queue_of


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    for index in range(3):
        log.add(queue_of(index), 100, stored_ms=1000)
        log.add(queue_of(index), 100, stored_ms=500_000)
    log.expire(queue_of(0), 50)
    log.add(queue_of(0, "Other"), 7)
    return log


def planned(log: FakeLog, pushdown: Pushdown | None = None, **options: str) -> list[str]:
    given = SourceOptions.of({"path": "/memory", "topic": "Orders", **options}, BATCH)
    plan = BatchPlan(log, replace(given, pushdown=pushdown or Pushdown()))
    parts = [each for part in plan.parts() for each in part]
    assert log.opened == 0
    assert all(each.size for each in parts)
    return [f"{each.queue.queue_id}[{each.start}..{each.end})" for each in parts]


def test_everything_by_default(log: FakeLog) -> None:
    assert planned(log) == ["0[50..200)", "1[0..200)", "2[0..200)"]


def test_bounds_are_asked_for_once(log: FakeLog) -> None:
    planned(log)
    assert log.asked_bounds == 1


def test_offsets_and_times(log: FakeLog) -> None:
    offsets = '{"Orders": {"broker-a": {"0": 60, "1": -1}}}'
    assert planned(log, startingOffsets=offsets, endingOffsets=offsets.replace("60", "70")) == [
        "0[60..70)",
        "2[0..200)",
    ]
    assert planned(log, startingTimestamp="2000") == ["0[100..200)", "1[100..200)", "2[100..200)"]
    assert planned(log, endingTimestamp="2000") == ["0[50..100)", "1[0..100)", "2[0..100)"]


def test_all_that_is_gone_is_named_at_once_or_left_out(log: FakeLog) -> None:
    starts = '{"Orders": {"broker-a": {"0": 3, "1": 900}}}'
    with pytest.raises(DataLoss, match=r"0\[3\.\.50\): expired.*1\[200\.\.900\): beyond the end"):
        planned(log, startingOffsets=starts)
    assert planned(log, startingOffsets=starts, failOnDataLoss="false") == ["0[50..200)", "2[0..200)"]
    ends = '{"Orders": {"broker-a": {"0": 900}}}'
    with pytest.raises(DataLoss, match=r"0\[200\.\.900\)"):
        planned(log, endingOffsets=ends)
    assert planned(log, endingOffsets=ends, failOnDataLoss="false") == planned(log)


def test_an_end_before_its_start_is_refused(log: FakeLog) -> None:
    with pytest.raises(
        InvalidOption, match="endingOffsets: queue 1 of Orders at broker-a would end at 5, before"
    ):
        planned(
            log,
            startingOffsets='{"Orders": {"broker-a": {"1": 6}}}',
            endingOffsets='{"Orders": {"broker-a": {"1": 5}}}',
        )


def test_filters_make_it_less(log: FakeLog) -> None:
    assert planned(log, Pushdown(queue_ids=frozenset({1}))) == ["1[0..200)"]
    assert planned(log, Pushdown(offset_span=(190, None), queue_id_span=(1, None))) == [
        "1[190..200)",
        "2[190..200)",
    ]
    assert planned(log, Pushdown(stored=(400_000, None))) == ["0[100..200)", "1[100..200)", "2[100..200)"]
    assert planned(log, Pushdown(topics=frozenset({"Other"}))) == []


def test_a_filter_on_a_topic_does_not_make_a_missing_one_there(log: FakeLog) -> None:
    with pytest.raises(TopicNotFound, match="Missing"):
        planned(log, Pushdown(topics=frozenset({"Orders"})), topic="Orders,Missing")


def test_parts_are_as_asked(log: FakeLog) -> None:
    given = {"path": "/memory", "topic": "Orders", "minPartitions": "7", "maxRecordsPerPartition": "90"}
    parts = BatchPlan(log, SourceOptions.of(given, BATCH)).parts()
    assert len(parts) >= 7
    assert max(sum(map(len, part)) for part in parts) <= 90
    assert sum(sum(map(len, part)) for part in parts) == 550


class MixedLog(FakeLog):
    """Its queues are in one log: everything is one part, and the last 10 of each range another."""

    def log_order_splits(self, parts: list[QueueRange], *, bytes_each: int) -> list[InputSplit]:
        assert bytes_each > 0
        return [
            tuple(QueueRange(part.queue, part.start, part.end - 10, self.heavy) for part in parts),
            tuple(QueueRange(part.queue, part.end - 10, part.end, 1) for part in parts),
        ]

    heavy = 1


def test_parts_are_ranges_of_the_log_where_queues_are_mixed(log: FakeLog) -> None:
    mixed = MixedLog(log.queues_there)

    def parts(**options: str) -> list[list[int]]:
        given = SourceOptions.of({"path": "/m", "topic": "Orders", **options}, BATCH)
        return [list(map(len, part)) for part in BatchPlan(mixed, given).parts()]

    assert parts() == [[140, 190, 190], [10, 10, 10]]
    assert parts(minPartitions="2") == parts()
    assert len(parts(minPartitions="3")) == 3
    assert max(map(sum, parts(maxRecordsPerPartition="50"))) <= 50
    mixed.heavy = 128 << 20
    assert parts() == [[140], [190], [190], [10, 10, 10]]


def test_a_topic_is_waited_for_while_it_is_planned() -> None:
    log = FakeLog()
    options = SourceOptions.of({"path": "/m", "topic": "Orders", "waitForTopic": "1h"}, BATCH)
    plan = BatchPlan(log, options, pause=lambda _: log.add(queue_of(), 3))
    assert [len(each) for part in plan.parts() for each in part] == [3]
