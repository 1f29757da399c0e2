"""A stream read without a session: Spark's calls in Spark's order, offsets as JSON, pickles."""

import json
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.datasource.stream import StreamReader
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.stream_offsets import StreamCursor
from tests.spark.fakes import FakeLog, queue_of
from tests.support.clock import ManualClock


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.add(queue_of(0), 10)
    log.add(queue_of(1), 20)
    return log


def stream(log: FakeLog, **options: str) -> StreamReader:
    given = {"path": "/memory", "topic": "Orders", "startingOffsets": "earliest", **options}
    reader = StreamReader(log, SourceOptions.of(given, STREAM), ("queueId", "queueOffset"))
    reader.__dict__["cursor"] = StreamCursor(log, reader.options, clock=ManualClock(0, step_ms=60_000))
    return reader


def at(zero: int, one: int) -> dict[str, Any]:
    return {"Orders": {"broker-a": {"0": zero, "1": one}}}


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part))


def test_a_batch_from_here_to_there(log: FakeLog) -> None:
    reader = stream(log)
    start = reader.initialOffset()
    assert start == reader.initialOffset() == at(0, 0)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == reader.reportLatestOffset() == at(10, 20)
    assert rows(reader, start, end) == 30
    assert reader.partitions(end, end) == []
    log.add(queue_of(1), 3)
    assert rows(reader, end, reader.latestOffset(end, ReadAllAvailable())) == 3


def test_nothing_new_is_the_same_text(log: FakeLog) -> None:
    """Spark compares offsets as strings, also those that it read from a checkpoint."""
    reader = stream(log)
    end = reader.latestOffset(at(0, 0), ReadAllAvailable())
    back = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(back, ReadAllAvailable())) == json.dumps(end)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "6"}, ReadMaxRows(6)),
        ({"maxBytesPerTrigger": "600"}, ReadMaxBytes(600)),
        ({"minOffsetsPerTrigger": "600"}, ReadMinRows(600)),
        (
            {"maxOffsetsPerTrigger": "6", "maxBytesPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            ReadMaxRows(6),
        ),
    ],
)
def test_spark_gets_one_limit(log: FakeLog, options: dict[str, str], limit: object) -> None:
    assert stream(log, **options).getDefaultReadLimit() == limit


def test_limits_hold_unless_spark_says_there_is_none(log: FakeLog) -> None:
    reader = stream(log, maxOffsetsPerTrigger="6")
    assert reader.latestOffset(at(0, 0), reader.getDefaultReadLimit()) == at(2, 4)
    assert reader.latestOffset(at(0, 0), ReadAllAvailable()) == at(10, 20)
    assert reader.reportLatestOffset() == at(10, 20)


def test_available_now_is_pinned_before_the_first_offset(log: FakeLog) -> None:
    reader = stream(log, maxOffsetsPerTrigger="20")
    assert isinstance(reader, SupportsTriggerAvailableNow)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    log.add(queue_of(0), 100)
    seen = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        seen.append(rows(reader, start, end))
        start = end
    assert start == at(10, 20)
    assert sum(seen) == 30
    assert len(seen) == 2


def test_a_copy_for_the_tasks_carries_no_tail(log: FakeLog) -> None:
    pickle = CloudPickleSerializer()
    given = SourceOptions.of({"path": "/memory", "topic": "Orders"}, STREAM)
    copy = pickle.loads(pickle.dumps(StreamReader(log, given, ("queueId",))))
    assert "tail" not in copy.__dict__
    (part,) = stream(log).partitions(at(0, 0), at(10, 20))
    assert sum(batch.num_rows for batch in copy.read(part)) == 30


@pytest.mark.parametrize("offset", [{"0": 5}, {"T": {"b": {"0": -1}}}, {"T": {"b": {"x": 1}}}, [], 7])
def test_an_offset_of_another_source_is_refused(log: FakeLog, offset: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidOption, match="checkpointLocation: its offsets are not of this source"):
        stream(log).latestOffset(offset, ReadAllAvailable())
